-- posthaste.schedule_run: sends the message of a schedule now, also of one that is paused. It is
-- no tick: the next tick, and what the schedule shows of its last one, do not change. The message has the
-- header posthaste-schedule and no posthaste-tick.
-- Returns: the message's id. Errors: PH404, and as posthaste.send. Inserts: as posthaste.send; action_records.
create or replace function posthaste.schedule_run(name text, by text default session_user)
returns bigint language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  s posthaste.schedule_settings;
  v_id bigint;
begin
  select * into s from posthaste.schedule_settings x where x.name = schedule_run.name;
  if s.name is null then
    raise exception using errcode = 'PH404', column = 'name', message = format('schedule %L does not exist', schedule_run.name),
      hint = 'the view posthaste.schedules lists them';
  end if;
  v_id := posthaste.schedule_send(s, (select q.name from posthaste.queue_settings q where q.id = s.queue_id), '{}');
  insert into posthaste.action_records (by, action, message_id, queue_id, details)
  values (coalesce(schedule_run.by, session_user), 'schedule_run', v_id, s.queue_id, jsonb_build_object('schedule', s.name));
  return v_id;
end $$;
