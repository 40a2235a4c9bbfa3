-- posthaste.lock_queue: takes a key of a queue for the rest of the transaction.
-- Arguments: the queue; what for:
--   settings    the row of its settings, before it is changed. A sender that is the first
--               to use a priority has it until its transaction ends, which may be long
--   withdrawn   what is withdrawn from it: shared by who withdraws or pauses for the
--               subscriptions that there are, exclusive by who makes another one
-- whether shared. Waits at most 5 s. Errors: PH503, naming the transaction in the way.
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
