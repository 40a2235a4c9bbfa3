-- posthaste.schedule_drop: drops a schedule. The messages that it sent stay.
-- Returns: true. Errors: PH404. Locks: the schedule. Deletes: schedule_settings, pauses.
-- Inserts: action_records.
create or replace function posthaste.schedule_drop(name text, by text default session_user)
returns boolean language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
  delete from posthaste.schedule_settings x where x.name = schedule_drop.name;
  if not found then
    raise exception using errcode = 'PH404', column = 'name', message = format('schedule %L does not exist', schedule_drop.name),
      hint = 'the view posthaste.schedules lists them';
  end if;
  delete from posthaste.pauses p where p.queue_id = 0 and p.what = 'schedule' and p.name = schedule_drop.name;
  insert into posthaste.action_records (by, action, details) values (coalesce(schedule_drop.by, session_user), 'schedule_drop', jsonb_build_object('schedule', schedule_drop.name));
  return true;
end $$;
