-- posthaste.lock_reader: takes a reader's lock for the rest of the transaction.
-- Arguments: reader, whether to wait for it.
-- Returns: whether it was taken. Waits at most 5 s.
-- Errors: PH503, naming the transaction in the way.
create or replace function posthaste.lock_reader(p_reader bigint, p_wait boolean)
returns boolean language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_key bigint := posthaste.lock_key(1, p_reader);
begin
  -- Waiting costs a subtransaction: only if another transaction holds the lock.
  if pg_try_advisory_xact_lock(v_key) then
    return true;
  elsif not p_wait then
    return false;
  end if;
  perform posthaste.await_key(v_key, false, 'claiming from this queue', 'receive in a short transaction of its own, and end that one');
  return true;
end $$;
