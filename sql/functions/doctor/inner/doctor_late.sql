-- posthaste.doctor_late: subscriptions that fall behind, messages of kinds that no worker
-- handles, schedules whose time zone does not exist
-- any more, and schedules whose ticks are not sent.
-- Reads: queue_settings, subscriptions, schedule_settings, pauses, and the tables of oldest_waiting.
create or replace function posthaste.doctor_late()
returns table ("check" text, level text, message text, hint text, queue text, subscription text) language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_schedule record;
begin
  return query
    select 'behind', 'warning', format('the oldest message that is ready for subscription %L of queue %L has waited for %s%s', o.subscription, o.queue,
                             date_trunc('second', o.age), case when o.paused_at is not null then ': the queue is paused' || posthaste.pause_note(o.id) else '' end),
           case when o.paused_at is not null then format('posthaste queue resume %s', o.queue)
                when o.unhandled then 'messages of kinds that no running worker handles wait there: see the finding kinds'
                else 'run a worker for it, or more of them; check whether its handlers fail or take long' end, o.queue, o.subscription
      from (select q.id, q.name as queue, s.name as subscription, q.paused_at, clock_timestamp() - w.since as age,
                   exists (select from posthaste.set_aside() a where a.queue_id = q.id and a.subscription = s.number
                              and not a.known and not a.paused and clock_timestamp() - a.since > posthaste.patience()) as unhandled
              from posthaste.oldest_waiting() w
              join posthaste.queue_settings q on q.id = w.queue_id
              join posthaste.subscriptions s on s.queue_id = w.queue_id and s.number = w.subscription) o
     where o.age > posthaste.patience()
     order by o.age desc limit 100;
  return query
    select 'kinds', 'warning', format('messages %s in subscription %L of queue %L wait for a worker that handles %s (%s of them, the oldest for %s), and no running worker does',
             case when a.kind = '' then 'without a kind' else format('of kind %L', a.kind) end, u.name, q.name, case when a.kind = '' then 'these' else 'this kind' end, case when a.waiting >= 4096 then '4,096 or more' else a.waiting::text end, date_trunc('second', clock_timestamp() - a.since)),
           'start the version of your program that has a handler for it, or a handler for all kinds; or cancel these messages', q.name, u.name
      from posthaste.set_aside() a
      join posthaste.queue_settings q on q.id = a.queue_id
      join posthaste.subscriptions u on u.queue_id = a.queue_id and u.number = a.subscription
     where not a.known and not a.paused and a.since < clock_timestamp() - posthaste.patience()
     order by a.since limit 100;
  for v_schedule in select x.name, x.time_zone, x.next_at, x.paused_at, q.name as queue
             from posthaste.schedule_settings x join posthaste.queue_settings q on q.id = x.queue_id order by x.name limit 1000 loop
    begin
      perform clock_timestamp() at time zone v_schedule.time_zone;
    exception when invalid_parameter_value then
      return query select 'schedules', 'fault', format('this server does not know the time zone %L of schedule %L', v_schedule.time_zone, v_schedule.name),
        'change the schedule to a known time zone, or fix the server''s time zone data', v_schedule.queue, null::text;
    end;
    if v_schedule.paused_at is null and v_schedule.next_at < clock_timestamp() - posthaste.patience() then
      return query select 'schedules', 'warning', format('schedule %L should have ticked %s ago', v_schedule.name, date_trunc('second', clock_timestamp() - v_schedule.next_at)),
        'run a worker, or select posthaste.maintain() every second', v_schedule.queue, null::text;
    end if;
  end loop;
end $$;
