-- posthaste.lock_holders: who holds an advisory lock, for messages.
-- Arguments: the key, as posthaste.lock_key makes it. Returns: processes, with
-- their names and since when their transactions run.
create or replace function posthaste.lock_holders(p_key bigint)
returns text language sql volatile set search_path = pg_catalog, pg_temp as $$
  select coalesce(string_agg(format('process %s (%s, since %s)', a.pid, a.application_name, a.xact_start), ', '), 'unknown')
    from pg_locks k join pg_stat_activity a using (pid)
   where k.locktype = 'advisory' and k.granted
     and k.database = (select d.oid from pg_database d where d.datname = current_database()) and k.classid = (p_key >> 32)::bigint::oid
     and k.objid = (p_key & 4294967295)::oid and k.objsubid = 1
$$;
