-- posthaste.lock_settings: takes the row of a queue's settings for the rest of the
-- transaction, before it is changed.
-- Arguments: queue. Waits at most 5 s: a sender that is the first to use a priority
-- has it until its transaction ends, which may be long.
-- Errors: PH503, naming the transaction in the way. Locks: the queue's settings.
create or replace function posthaste.lock_settings(p_queue int)
returns void language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_key bigint := posthaste.lock_key(13, p_queue);
begin
  if not posthaste.await_key(v_key, false) then
    raise exception using errcode = 'PH503',
      message = 'another transaction has been changing this queue for 5 s, or waits for this one: ' || posthaste.lock_holders(v_key),
      hint = 'end that transaction, and try again; the first message of a queue with a priority changes it too, until its sender commits';
  end if;
end $$;
