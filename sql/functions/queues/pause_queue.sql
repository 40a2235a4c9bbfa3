-- posthaste.pause_queue: pauses a queue: later claims and receives find nothing. Messages
-- handed out before can be settled, and senders are not affected.
-- Arguments: the queue's name; by: the actor to record; reason and until as of set_pause.
-- Returns: whether it changed anything. Errors: PH404; those of set_pause; PH503, naming the
-- transaction that changes the queue. Locks: the queue's settings. Updates: queue_settings. Writes
-- as set_pause.
create or replace function posthaste.pause_queue(queue text, by text default session_user, reason text default null, until timestamptz default null)
returns boolean language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_id int := posthaste.find_queue(pause_queue.queue);
begin
  perform posthaste.lock_queue(v_id, 'settings');
  update posthaste.queue_settings q set paused_at = clock_timestamp()
   where q.id = v_id and q.dropped_at is null and q.paused_at is null;
  if not found then
    perform posthaste.find_queue(pause_queue.queue); -- raises an error if it was dropped meanwhile
  end if;
  return posthaste.set_pause('queue', v_id, '', pause_queue.by, pause_queue.reason, pause_queue.until);
end $$;
