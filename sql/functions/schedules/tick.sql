-- posthaste.tick: ends one pause whose end is reached, or else sends the messages of the schedules'
-- ticks that are due. Any number of sessions may call it at any time: a schedule is locked while its message is sent and its next
-- tick is set, in one transaction, and a locked one is skipped. posthaste.maintain calls it,
-- too.
-- Bounded: 100 schedules, and 100 messages of each, in a call; and about a second.
-- Returns: messages sent; ticks without a message, because of catch_up; seconds until the next
-- tick or end of a pause, 0 if one is due already, null if none is expected; pauses that ended.
-- Errors: PH503 in a copy of the database. Locks: schedules, without waiting.
create or replace function posthaste.tick(out sent int, out missed bigint, out next_tick double precision, out ended int)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_now timestamptz := clock_timestamp();
  s posthaste.schedule_settings;
  r record;
begin
  sent := 0;
  missed := 0;
  ended := 0;
  next_tick := posthaste.tick_in();
  if next_tick is null or next_tick > 0 then
    return;
  end if;
  if current_setting('posthaste.identity_checked', true) is distinct from 'yes' then
    perform posthaste.check_identity();
  end if;
  -- One a call, because ending it locks its queue until the transaction ends.
  if posthaste.end_pause() then
    ended := 1;
    next_tick := posthaste.tick_in();
    return;
  end if;
  for s in
    select x.* from posthaste.schedule_settings x
     where x.paused_at is null and x.next_at <= v_now
     order by x.next_at limit 100 for update skip locked
  loop
    r := posthaste.tick_schedule(s, v_now);
    sent := sent + r.sent;
    missed := missed + r.missed;
    exit when clock_timestamp() > v_now + interval '1 second';
  end loop;
  next_tick := posthaste.tick_in();
end $$;
