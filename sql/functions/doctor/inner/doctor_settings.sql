-- posthaste.doctor_settings: settings of the database that lose messages or keep them from being
-- handed out, including those set for roles that may use the ledger, or for all since this
-- session began (alter role, alter database).
-- Reads: pg_settings, pg_db_role_setting, pg_roles, pg_stat_activity.
create or replace function posthaste.doctor_settings()
returns table ("check" text, level text, message text, hint text, queue text, subscription text) language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_used int;
begin
  return query
    select 'settings', x.level, format('%s is %s: %s', s.name, s.reset_val || coalesce(' ' || s.unit, ''), x.why), x.hint, null::text, null::text
      from pg_settings s
      join (values
        ('fsync', 'fault', 'committed messages can be lost, and the database destroyed, when the machine crashes', 'turn fsync on: alter system set fsync = on; select pg_reload_conf()'),
        ('full_page_writes', 'fault', 'the database can be destroyed when the machine crashes', 'turn full_page_writes on: alter system set full_page_writes = on; select pg_reload_conf()'),
        ('synchronous_commit', 'warning', 'the last sends and settlements can be lost when the database crashes', format('turn synchronous_commit on, at least for this database: alter database %I set synchronous_commit = on', current_database())),
        ('default_transaction_isolation', 'warning', 'receiving by SQL needs READ COMMITTED', 'set it to read committed, at least for the roles that receive'),
        ('default_transaction_read_only', 'fault', 'nothing can be sent or handed out', format('turn default_transaction_read_only off for this database: alter database %I set default_transaction_read_only = off', current_database())),
        ('autovacuum', 'warning', 'small tables (queues, workers, counters) grow without bound', 'turn autovacuum on, which only the ring does not need: alter system set autovacuum = on; select pg_reload_conf()'),
        ('statement_timeout', 'warning', 'upkeep and rescue may need longer', 'set it for the roles that need it, not for the database'),
        ('transaction_timeout', 'warning', 'upkeep and rescue may need longer', 'set it for the roles that need it, not for the database')
      ) x (name, level, why, hint) on x.name = s.name
     where case s.name when 'default_transaction_isolation' then s.reset_val not in ('read committed', 'read uncommitted')
                       when 'default_transaction_read_only' then s.reset_val = 'on'
                       when 'synchronous_commit' then s.reset_val = 'off'
                       when 'statement_timeout' then s.reset_val::bigint between 1 and 9999
                       when 'transaction_timeout' then s.reset_val::bigint between 1 and 9999
                       else s.setting = 'off' end
     order by x.level, s.name;
  return query
    select 'settings', 'warning', format('%s is %s for %s: %s', z.name, z.value, coalesce('role ' || z.role, 'new sessions'), x.why), x.hint, null::text, null::text
      from (select distinct on (d.setrole, split_part(c, '=', 1)) d.setrole, r.rolname as role, split_part(c, '=', 1) as name, lower(substr(c, strpos(c, '=') + 1)) as value
              from pg_db_role_setting d cross join unnest(d.setconfig) c left join pg_roles r on r.oid = d.setrole
             where (d.setdatabase = 0 or d.setdatabase = (select b.oid from pg_database b where b.datname = current_database()))
               and (d.setrole = 0 or r.rolcanlogin and has_schema_privilege(r.oid, 'posthaste', 'usage'))
             order by 1, 3, d.setdatabase desc) z
      join (values
        ('synchronous_commit', 'the last sends and settlements can be lost when the database crashes', 'turn synchronous_commit on, at least in this database: alter role … in database … set synchronous_commit = on'),
        ('default_transaction_isolation', 'receiving needs READ COMMITTED', 'set it to read committed, at least in this database: alter role … in database … set …'),
        ('default_transaction_read_only', 'nothing can be sent or received with it', 'turn default_transaction_read_only off, at least in this database: alter role … in database … set default_transaction_read_only = off')
      ) x (name, why, hint) on x.name = z.name
      join pg_settings s on s.name = z.name and s.reset_val <> z.value -- the settings of this session are reported above
     where case z.name when 'default_transaction_isolation' then z.value not in ('read committed', 'read uncommitted')
                                                                 and (z.setrole = 0 or has_function_privilege(z.setrole, 'posthaste.receive(text, bigint, interval, anycompatible)', 'execute'))
                       when 'default_transaction_read_only' then z.value::boolean
                       else z.value in ('off', 'false', 'no', '0') end
     order by 3 limit 20;
  select count(*) into v_used from pg_stat_activity a where a.backend_type = 'client backend';
  if v_used > 0.9 * current_setting('max_connections')::int then
    return query select 'settings', 'warning', format('%s of %s connections are in use', v_used, current_setting('max_connections')),
      'raise max_connections, give processes smaller pools (pool_max_conns), or use a connection pooler', null::text, null::text;
  end if;
end $$;
