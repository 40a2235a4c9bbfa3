-- posthaste.resume_kind: resumes a kind of messages of a queue and wakes sleeping workers.
-- Arguments: the queue's name; the kind; by: the actor to record.
-- Returns: whether it changed anything. Errors: PH404; PH400 and PH413 of the kind; PH503, naming
-- the transaction that changes the queue. Locks: the queue's settings. Updates: queue_settings.
-- Deletes: pauses. Inserts: action_records.
create or replace function posthaste.resume_kind(queue text, kind text, by text default session_user)
returns boolean language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  q posthaste.queue_settings := posthaste.kind_settings(resume_kind.queue, resume_kind.kind);
begin
  if (resume_kind.kind = any (q.kinds_paused)) is not true then
    return false;
  end if;
  -- Its lane stays among those that may hold messages. Upkeep removes it once it is empty.
  update posthaste.queue_settings x set kinds_paused = nullif(array_remove(x.kinds_paused, resume_kind.kind), '{}') where x.id = q.id;
  delete from posthaste.pauses p where p.queue_id = q.id and p.what = 'kind' and p.name = resume_kind.kind;
  insert into posthaste.action_records (by, action, queue_id, details)
  values (coalesce(resume_kind.by, session_user), 'resume_kind', q.id, jsonb_build_object('kind', resume_kind.kind));
  perform pg_notify('posthaste', q.id::text);
  return true;
end $$;
