-- posthaste.doctor_settings: settings of the database that lose messages, or stand
-- in the way of handing them out.
-- Reads: pg_settings, pg_stat_activity.
create or replace function posthaste.doctor_settings()
returns table (level text, message text, hint text, queue text, subscription text) language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_used int;
begin
  return query
    select x.level, format('%s is %s: %s', s.name, s.setting || coalesce(' ' || s.unit, ''), x.why), x.hint, null::text, null::text
      from pg_settings s
      join (values
        ('fsync', 'fault', 'what was committed can be lost, and the database be destroyed, when the machine goes down', 'turn it on'),
        ('full_page_writes', 'fault', 'the database can be destroyed when the machine goes down', 'turn it on'),
        ('synchronous_commit', 'warning', 'what was sent or settled in the last moments can be lost when the database goes down', 'turn it on, for this database at least'),
        ('default_transaction_isolation', 'fault', 'receiving is refused outside of READ COMMITTED', 'set it to read committed, for those who receive at least'),
        ('default_transaction_read_only', 'fault', 'nothing can be sent or handed out', 'turn it off for this database'),
        ('autovacuum', 'warning', 'small tables (queues, workers, counters) grow without end', 'turn it on; the ring does not need it, all else does'),
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
  select count(*) into v_used from pg_stat_activity a where a.backend_type = 'client backend';
  if v_used > 0.9 * current_setting('max_connections')::int then
    return query select 'warning', format('%s of %s connections are in use', v_used, current_setting('max_connections')),
      'raise max_connections, give processes smaller pools (pool_max_conns), or put a pooler before the database', null::text, null::text;
  end if;
end $$;
