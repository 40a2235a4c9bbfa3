-- posthaste.lock_queue: takes a lock of a queue for the rest of the transaction.
-- Arguments: the queue; the lock:
--   settings    the row of its settings, before a change. The first sender that uses a
--               priority holds it until its transaction ends, which may take long
--   withdrawn   its withdrawals: shared by transactions that withdraw or pause for the
--               existing subscriptions, exclusive for one that adds a subscription
create or replace function posthaste.lock_queue(p_queue int, p_what text, p_shared boolean default false)
returns void language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
  if p_what = 'settings' then
    perform posthaste.await_key(posthaste.lock_key(13, p_queue), p_shared, 'changing this queue',
      'end that transaction, and try again; the first message of a queue with a priority changes it too, until its sender commits');
  else
    perform posthaste.await_key(posthaste.lock_key(12, p_queue), p_shared, 'withdrawing from this queue, pausing its keys or subscribing to it',
      'end that one, and try again');
  end if;
end $$;
