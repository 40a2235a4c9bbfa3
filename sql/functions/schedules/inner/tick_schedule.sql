-- posthaste.tick_schedule: sends the due messages of one schedule that the caller has locked,
-- and sets its next tick, in bounded steps.
-- Arguments: the schedule; now. Returns: messages sent, and ticks without one.
-- If the queue does not accept a message, the tick is missed and the error stored.
-- Locks: the queue's key, shared and without waiting: a session that drops the queue holds it
--   and waits for this schedule. Updates: schedule_settings.
create or replace function posthaste.tick_schedule(s posthaste.schedule_settings, p_now timestamptz, out sent int, out missed bigint)
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_queue text := (select q.name from posthaste.queue_settings q where q.id = s.queue_id);
  v_next timestamptz;
  v_steps int := 0;
begin
  sent := 0;
  missed := 0;
  if not pg_try_advisory_xact_lock_shared(posthaste.lock_key(7, hashtext(v_queue))) then
    return;
  end if;
  if s.every is not null and s.catch_up <> 'each' then
    missed := floor(extract(epoch from p_now - s.next_at) / extract(epoch from s.every));
    s.next_at := s.next_at + missed * s.every;
  end if;
  loop
    v_next := posthaste.next_tick(s.cron, s.every, s.time_zone, s.next_at);
    if s.catch_up <> 'each' and (v_next <= p_now or s.catch_up = 'skip' and s.next_at < p_now - interval '1 minute') then
      missed := missed + 1;
    else
      begin
        s.last_id := posthaste.tick_send(s, v_queue, s.next_at);
        s.last_tick := s.next_at;
        s.last_sent_at := p_now;
        s.error := null;
        sent := sent + 1;
      exception when others then
        -- Any other error is the database's, and the tick stays due.
        if sqlstate not like 'PH4%' then
          raise;
        end if;
        s.error := sqlerrm;
        missed := missed + 1;
      end;
    end if;
    s.next_at := v_next;
    v_steps := v_steps + case when s.catch_up = 'each' then 10 else 1 end;
    exit when v_next > p_now or v_steps >= 1000;
  end loop;
  update posthaste.schedule_settings x
     set next_at = s.next_at, last_id = s.last_id, last_tick = s.last_tick, last_sent_at = s.last_sent_at, error = s.error,
         sent = x.sent + tick_schedule.sent, missed = x.missed + tick_schedule.missed
   where x.name = s.name;
end $$;
