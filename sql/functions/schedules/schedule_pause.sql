-- posthaste.schedule_pause: stops a schedule until posthaste.schedule_resume. Its
-- ticks in between are not missed: there are none. Harmless when repeated.
-- Errors: PH404. Locks: the schedule. Updates: schedule_settings.
create or replace function posthaste.schedule_pause(name text)
returns void language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
  update posthaste.schedule_settings x set paused_at = coalesce(x.paused_at, clock_timestamp()) where x.name = schedule_pause.name;
  if not found then
    raise exception using errcode = 'PH404', column = 'name', message = format('schedule %L does not exist', schedule_pause.name),
      hint = 'the view posthaste.schedules lists them';
  end if;
end $$;
