-- posthaste.resume_key: resumes delivery for one key and wakes sleeping workers.
-- Arguments: the queue's name; the key; by: the actor to record.
-- Returns: whether it changed anything. Errors: as pause_key.
-- Locks: as key_readers. Updates: keys. Deletes: pauses. Inserts: entries_other (events), action_records.
create or replace function posthaste.resume_key(queue text, key text, by text default session_user)
returns boolean language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_reader bigint;
  v_queue int := posthaste.find_queue(resume_key.queue);
  v_changed boolean := false;
begin
  foreach v_reader in array posthaste.key_readers(resume_key.queue, resume_key.key) loop
    update posthaste.keys z set paused_at = null where z.subscriber = v_reader >> 10 and z.key = resume_key.key and z.paused_at is not null;
    continue when not found;
    v_changed := true;
    delete from posthaste.keys z
     where z.subscriber = v_reader >> 10 and z.key = resume_key.key and not z.blocked and z.stopped_by is null and z.tokens is null;
    if not found then
      perform posthaste.lane_event(v_reader >> 10, (v_reader >> 1 & 511)::int, jsonb_build_array(jsonb_build_object('key', resume_key.key)), clock_timestamp());
    end if;
  end loop;
  if v_changed then
    delete from posthaste.pauses p where p.queue_id = v_queue and p.what = 'key' and p.name = resume_key.key;
    insert into posthaste.action_records (by, action, queue_id, details)
    values (coalesce(resume_key.by, session_user), 'resume_key', v_queue, jsonb_build_object('key', resume_key.key));
    perform pg_notify('posthaste', v_queue::text);
  end if;
  return v_changed;
end $$;
