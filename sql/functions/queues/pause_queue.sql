-- posthaste.pause_queue: pauses a queue: later claims and receives find nothing. Messages
-- handed out before can be settled, and senders are not affected.
-- Arguments: the queue's name; by: the actor to record.
-- Returns: whether it changed anything. Errors: PH404; PH503, naming the transaction that changes
-- the queue. Locks: the queue's settings. Updates: queue_settings. Inserts: action_records.
create or replace function posthaste.pause_queue(queue text, by text default session_user)
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
    return false;
  end if;
  insert into posthaste.action_records (by, action, queue_id) values (coalesce(pause_queue.by, session_user), 'pause', v_id);
  return true;
end $$;
