-- posthaste.resume_queue: what waits is handed out again, and who sleeps is woken.
-- Arguments: the queue's name; by: who asked, for the record.
-- Returns: whether it changed anything. Errors: PH404.
-- Updates: queue_settings. Inserts: action_records.
create or replace function posthaste.resume_queue(name text, by text default session_user)
returns boolean language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_id int;
begin
  update posthaste.queue_settings q set paused_at = null
   where q.name = resume_queue.name and q.dropped_at is null and q.paused_at is not null returning q.id into v_id;
  if v_id is null then
    perform posthaste.find_subscription(resume_queue.name, null); -- says if there is none
    return false;
  end if;
  insert into posthaste.action_records (by, action, queue_id) values (coalesce(resume_queue.by, session_user), 'resume', v_id);
  perform pg_notify('posthaste', v_id::text);
  return true;
end $$;
