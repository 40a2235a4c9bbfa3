-- posthaste.await_key: takes an advisory lock for the rest of the transaction, waiting at
-- most 5 s.
-- Arguments: the key, as posthaste.lock_key makes it; whether shared; for the error, what a
-- transaction that holds the lock does, and a hint.
-- Errors: PH503, naming the processes that hold it and the start of their transactions.
-- After a deadlock it waits again, at most twice: upkeep that wants a slot's tables may be
-- part of the deadlock, and upkeep gives up after 50 ms.
create or replace function posthaste.await_key(p_key bigint, p_shared boolean, p_doing text, p_hint text)
returns void language plpgsql volatile set search_path = pg_catalog, pg_temp set lock_timeout = '5s' as $$
declare
  v_end timestamptz := clock_timestamp() + current_setting('lock_timeout')::interval;
  v_deadlocks int := 0;
begin
  loop
    begin
      if p_shared then
        perform pg_advisory_xact_lock_shared(p_key);
      else
        perform pg_advisory_xact_lock(p_key);
      end if;
      return;
    exception
      when lock_not_available then
        exit;
      when deadlock_detected then
        v_deadlocks := v_deadlocks + 1;
        if v_deadlocks > 2 or clock_timestamp() >= v_end then
          exit;
        end if;
        perform set_config('lock_timeout', greatest(1, ceil(extract(epoch from v_end - clock_timestamp()) * 1000))::int::text, true);
    end;
  end loop;
  raise exception using errcode = 'PH503', hint = p_hint,
    message = format('another transaction has been %s for 5 s, or waits for this one: %s', p_doing, coalesce((
      select string_agg(format('process %s (%s, since %s)', a.pid, a.application_name, a.xact_start), ', ')
        from pg_locks k join pg_stat_activity a using (pid)
       where k.locktype = 'advisory' and k.granted
         and k.database = (select d.oid from pg_database d where d.datname = current_database()) and k.classid = (p_key >> 32)::bigint::oid
         and k.objid = (p_key & 4294967295)::oid and k.objsubid = 1), 'unknown'));
end $$;
