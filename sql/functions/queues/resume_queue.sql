-- posthaste.resume_queue: resumes a queue and wakes its sleeping workers.
-- Arguments: the queue's name; by: the actor to record.
-- Returns: whether it changed anything. Errors: PH404; PH503, naming the transaction that changes
-- the queue. Locks: the queue's settings. Updates: queue_settings. Deletes:
-- pauses. Inserts: action_records.
create or replace function posthaste.resume_queue(queue text, by text default session_user)
returns boolean language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_id int := posthaste.find_queue(resume_queue.queue);
begin
  perform posthaste.lock_queue(v_id, 'settings');
  update posthaste.queue_settings q set paused_at = null
   where q.id = v_id and q.dropped_at is null and q.paused_at is not null;
  if not found then
    perform posthaste.find_queue(resume_queue.queue); -- raises an error if it was dropped meanwhile
    return false;
  end if;
  delete from posthaste.pauses p where p.queue_id = v_id and p.what = 'queue';
  insert into posthaste.action_records (by, action, queue_id) values (coalesce(resume_queue.by, session_user), 'resume', v_id);
  perform pg_notify('posthaste', v_id::text);
  return true;
end $$;
