-- posthaste.schedule_pause: pauses a schedule until posthaste.schedule_resume. Ticks in between
-- do not count as missed. Idempotent.
-- Returns: whether it changed anything. Errors: PH404. Locks: the schedule. Updates: schedule_settings.
-- Inserts: action_records, if it changes anything.
create or replace function posthaste.schedule_pause(name text, by text default session_user)
returns boolean language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
  update posthaste.schedule_settings x set paused_at = clock_timestamp() where x.name = schedule_pause.name and x.paused_at is null;
  if found then
    insert into posthaste.action_records (by, action, details) values (coalesce(schedule_pause.by, session_user), 'schedule_pause', jsonb_build_object('schedule', schedule_pause.name));
    return true;
  elsif not exists (select from posthaste.schedule_settings x where x.name = schedule_pause.name) then
    raise exception using errcode = 'PH404', column = 'name', message = format('schedule %L does not exist', schedule_pause.name),
      hint = 'the view posthaste.schedules lists them';
  end if;
  return false;
end $$;
