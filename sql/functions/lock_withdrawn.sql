-- posthaste.lock_withdrawn: takes the key of what is withdrawn from a queue for the
-- rest of the transaction: shared by who withdraws or pauses for the subscriptions
-- that there are, exclusive by who makes another one.
-- Arguments: the queue's number; whether shared. Waits at most 5 s.
-- Errors: PH503, naming the transaction in the way.
create or replace function posthaste.lock_withdrawn(p_queue int, p_shared boolean)
returns void language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_key bigint := posthaste.lock_key(12, p_queue);
begin
  if not posthaste.await_key(v_key, p_shared) then
    raise exception using errcode = 'PH503',
      message = 'another transaction has been withdrawing from this queue, pausing its keys or subscribing to it for 5 s, or waits for this one: ' || posthaste.lock_holders(v_key),
      hint = 'end that one, and try again';
  end if;
end $$;
