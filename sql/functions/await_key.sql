-- posthaste.await_key: takes an advisory lock for the rest of the transaction, and waits
-- for it at most 5 s.
-- Arguments: the key, as posthaste.lock_key makes it; whether shared.
-- Returns: whether it was taken.
-- After a deadlock it waits again, twice at most: upkeep that wants a slot's tables may be
-- a part of the deadlock, and upkeep gives up after 50 ms.
create or replace function posthaste.await_key(p_key bigint, p_shared boolean)
returns boolean language plpgsql volatile set search_path = pg_catalog, pg_temp set lock_timeout = '5s' as $$
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
      return true;
    exception
      when lock_not_available then
        return false;
      when deadlock_detected then
        v_deadlocks := v_deadlocks + 1;
        if v_deadlocks > 2 or clock_timestamp() >= v_end then
          return false;
        end if;
        perform set_config('lock_timeout', greatest(1, ceil(extract(epoch from v_end - clock_timestamp()) * 1000))::int::text, true);
    end;
  end loop;
end $$;
