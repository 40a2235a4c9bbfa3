-- posthaste.await_key: takes an advisory lock for the rest of the transaction, and waits
-- for it at most 5 s.
-- Arguments: the key, as posthaste.lock_key makes it; whether shared.
-- Returns: whether it was taken.
-- A deadlock is waited out, too, as long: upkeep that wants a slot's tables may be a part
-- of it, which gives up after 50 ms.
create or replace function posthaste.await_key(p_key bigint, p_shared boolean)
returns boolean language plpgsql volatile set search_path = pg_catalog, pg_temp set lock_timeout = '5s' as $$
declare
  v_end timestamptz := clock_timestamp() + current_setting('lock_timeout')::interval;
begin
  -- A block that catches errors costs a subtransaction: only where it has to wait.
  if p_shared and pg_try_advisory_xact_lock_shared(p_key) or not p_shared and pg_try_advisory_xact_lock(p_key) then
    return true;
  end if;
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
        if clock_timestamp() >= v_end then
          return false;
        end if;
    end;
  end loop;
end $$;
