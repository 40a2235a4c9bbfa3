-- Who may do what. Applied at every migrate, after functions and views, for
-- those of the three roles that exist; anybody else gets nothing from here.
-- The functions of the list are the interface and run with their owner's rights.
-- No role writes to a table itself.
-- A test holds that every function of the list exists.
revoke all on schema posthaste from public;
revoke all on all tables in schema posthaste from public;
revoke all on all functions in schema posthaste from public;

do $$
declare
  g record;
  f record;
begin
  for g in
    select r.rolname
      from pg_catalog.pg_roles r
     where r.rolname in ('posthaste_sender', 'posthaste_receiver', 'posthaste_admin')
     order by r.rolname
  loop
    execute format('grant usage on schema posthaste to %I', g.rolname);
    execute format('grant select on posthaste.migrations to %I', g.rolname);
  end loop;

  for g in
    select l.role, l.function
      from (values
        ('posthaste_sender', 'not_here'),
        ('posthaste_sender', 'send'),
        ('posthaste_sender', 'send_bytes'),
        ('posthaste_sender', 'send_many'),
        ('posthaste_sender', 'send_row'),
        ('posthaste_sender', 'send_rows'),
        ('posthaste_sender', 'idempotency_begin'),
        ('posthaste_sender', 'idempotency_end'),
        ('posthaste_receiver', 'receive'),
        ('posthaste_receiver', 'ack'),
        ('posthaste_receiver', 'fail'),
        ('posthaste_receiver', 'release'),
        ('posthaste_receiver', 'extend'),
        ('posthaste_receiver', 'message'),
        ('posthaste_receiver', 'arm'),
        ('posthaste_receiver', 'bell_key'),
        ('posthaste_receiver', 'doze_key'),
        ('posthaste_receiver', 'lock_key'),
        ('posthaste_receiver', 'worker_register'),
        ('posthaste_receiver', 'warm_up'),
        ('posthaste_receiver', 'worker_heartbeat'),
        ('posthaste_receiver', 'worker_look'),
        ('posthaste_receiver', 'worker_unregister'),
        ('posthaste_receiver', 'worker_unsettled'),
        ('posthaste_receiver', 'claim'),
        ('posthaste_receiver', 'fetch'),
        ('posthaste_receiver', 'settle'),
        ('posthaste_receiver', 'rescue'),
        ('posthaste_receiver', 'maintain'),
        ('posthaste_receiver', 'tick'),
        ('posthaste_receiver', 'tick_in'),
        ('posthaste_receiver', 'rescue_in')
      ) l (role, function)
      join pg_catalog.pg_roles r on r.rolname = l.role
  loop
    for f in select p.oid::pg_catalog.regprocedure as signature from pg_catalog.pg_proc p
              where p.pronamespace = 'posthaste'::pg_catalog.regnamespace and p.proname = g.function
    loop
      execute format('grant execute on routine %s to %I', f.signature, g.role);
    end loop;
  end loop;

  if exists (select from pg_catalog.pg_roles where rolname = 'posthaste_admin') then
    grant execute on all functions in schema posthaste to posthaste_admin;
    grant select on all tables in schema posthaste to posthaste_admin;
  end if;
end $$;
