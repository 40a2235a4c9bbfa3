-- posthaste.doctor_schedules: does every schedule's time zone still exist, and does
-- somebody send what is due? Reads: schedule_settings.
create or replace function posthaste.doctor_schedules()
returns table (level text, message text, hint text, queue text, subscription text) language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  s record;
begin
  for s in select x.name, x.time_zone, x.next_at, x.paused_at, q.name as queue
             from posthaste.schedule_settings x join posthaste.queue_settings q on q.id = x.queue_id order by x.name limit 1000 loop
    begin
      perform clock_timestamp() at time zone s.time_zone;
    exception when invalid_parameter_value then
      return query select 'fault', format('this server does not know the time zone %L of schedule %L', s.time_zone, s.name),
        'put the schedule anew with one that it knows, or mend the server''s time zone data', s.queue, null::text;
    end;
    if s.paused_at is null and s.next_at < clock_timestamp() - posthaste.patience() then
      return query select 'warning', format('schedule %L should have ticked %s ago', s.name, date_trunc('second', clock_timestamp() - s.next_at)),
        'run a worker, or select posthaste.maintain() every second', s.queue, null::text;
    end if;
  end loop;
end $$;
