-- posthaste.schedule_pause: pauses a schedule until posthaste.schedule_resume. Ticks in between
-- do not count as missed. Idempotent.
-- Arguments: name; by: the actor to record; reason and until as of set_pause.
-- Returns: whether it changed anything. Errors: PH404; those of set_pause. Locks: the schedule.
-- Updates: schedule_settings. Writes as set_pause.
create or replace function posthaste.schedule_pause(name text, by text default session_user, reason text default null, until timestamptz default null)
returns boolean language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
  perform from posthaste.schedule_settings x where x.name = schedule_pause.name for update;
  if not found then
    raise exception using errcode = 'PH404', column = 'name', message = format('schedule %L does not exist', schedule_pause.name),
      hint = 'the view posthaste.schedules lists them';
  end if;
  update posthaste.schedule_settings x set paused_at = clock_timestamp() where x.name = schedule_pause.name and x.paused_at is null;
  return posthaste.set_pause('schedule', 0, schedule_pause.name, schedule_pause.by, schedule_pause.reason, schedule_pause.until);
end $$;
