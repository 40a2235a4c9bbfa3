-- posthaste.doctor_privileges: may the roles do what they are for? Where there are
-- none (migrate up --no-roles) nothing is expected of them.
-- Reads: pg_roles, and the privileges.
create or replace function posthaste.doctor_privileges()
returns table (level text, message text, hint text, queue text, subscription text) language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
  return query
    select 'fault', format('role %s may not %s', r.rolname, x.what), 'posthaste migrate up grants it anew', null::text, null::text
      from pg_roles r
      join (values ('posthaste_sender', 'send', 'posthaste.send(text, jsonb, jsonb)'),
                   ('posthaste_receiver', 'receive', 'posthaste.receive(text, integer, interval, jsonb)'),
                   ('posthaste_receiver', 'do upkeep', 'posthaste.maintain()'),
                   ('posthaste_admin', 'make queues', 'posthaste.create_queue(text, jsonb)')) x (role, what, call) on x.role = r.rolname
     where not has_schema_privilege(r.rolname, 'posthaste', 'usage') or not has_function_privilege(r.rolname, x.call, 'execute')
     order by 2;
end $$;
