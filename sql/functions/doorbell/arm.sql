-- posthaste.arm: the sleeper's part of the doorbell. Call it on a connection that listens to
-- channel posthaste and never sends (a session's own exclusive lock does not exclude itself),
-- look at the queue once more, then sleep.
-- Arguments: queue name; dozing: this session holds the doze key already.
-- Returns: queue_id, and armed, one word:
--   bell    the bell key is held now: every later send notifies. Release it with
--           pg_advisory_unlock(posthaste.bell_key(queue_id)) on waking.
--   heard   another session holds it: every later send notifies as long as that session
--           sleeps, so ask again from time to time.
--   doze    a sender that will not notify is still in flight; the doze key is held now, so
--           later sends notify. Look again in growing intervals.
--   dozed   the same, and another session holds the doze key and looks.
--   again   a send held the doze key for a moment: ask again in 2 ms.
-- If it ends with any other error (such as a cancellation), it may still have taken a key,
-- which the end of the transaction does not release: call pg_advisory_unlock_all(), or close
-- the connection. A bell whose holder does not sleep loses no message, but makes every send
-- notify for as long as the session lives.
-- Errors: PH404 with the field queue. Tables: reads queue_settings.
-- Locks: bell key and doze key, exclusive, without waiting, held by the session; both are
--   probed shared, and released within the same expression.
create or replace function posthaste.arm(p_queue text, p_dozing boolean default false, out queue_id int, out armed text)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
  select q.id into queue_id from posthaste.queue_settings q where q.name = p_queue and q.dropped_at is null;
  if queue_id is null then
    raise exception using errcode = 'PH404', column = 'queue', message = format('queue %L does not exist', p_queue),
      hint = format('create it: select posthaste.create_queue(%L)', p_queue);
  end if;
  armed := case
    when pg_try_advisory_lock(posthaste.bell_key(queue_id)) then 'bell'
    when not (pg_try_advisory_lock_shared(posthaste.bell_key(queue_id))
              and pg_advisory_unlock_shared(posthaste.bell_key(queue_id))) then 'heard'
    when p_dozing then 'doze'
    when pg_try_advisory_lock(posthaste.doze_key(queue_id)) then 'doze'
    -- Not available: a send may hold it for a moment.
    when pg_try_advisory_lock_shared(posthaste.doze_key(queue_id))
     and pg_advisory_unlock_shared(posthaste.doze_key(queue_id)) then 'again'
    else 'dozed'
  end;
end $$;
