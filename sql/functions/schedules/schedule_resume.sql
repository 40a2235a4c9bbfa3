-- posthaste.schedule_resume: resumes a paused schedule with its first tick from now on. An
-- interval keeps its step. Idempotent.
-- Returns: the next tick. Errors: PH404. Locks: the schedule. Updates:
-- schedule_settings. Deletes: pauses. Inserts: action_records, if it changes anything.
create or replace function posthaste.schedule_resume(name text, by text default session_user)
returns timestamptz language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  s posthaste.schedule_settings;
begin
  select * into s from posthaste.schedule_settings x where x.name = schedule_resume.name for update;
  if s.name is null then
    raise exception using errcode = 'PH404', column = 'name', message = format('schedule %L does not exist', schedule_resume.name),
      hint = 'the view posthaste.schedules lists them';
  elsif s.paused_at is null then
    return s.next_at;
  end if;
  if s.next_at <= clock_timestamp() then
    s.next_at := case
      when s.every is null then posthaste.next_tick(s.cron, null, s.time_zone, clock_timestamp())
      else s.next_at + s.every * (1 + floor(extract(epoch from clock_timestamp() - s.next_at) / extract(epoch from s.every))::double precision) end;
  end if;
  update posthaste.schedule_settings x set paused_at = null, next_at = s.next_at where x.name = s.name;
  delete from posthaste.pauses p where p.queue_id = 0 and p.what = 'schedule' and p.name = s.name;
  insert into posthaste.action_records (by, action, details) values (coalesce(schedule_resume.by, session_user), 'schedule_resume', jsonb_build_object('schedule', schedule_resume.name));
  return s.next_at;
end $$;
