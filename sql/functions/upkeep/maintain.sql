-- posthaste.maintain: one round of upkeep: schedules, rescue, counters, rotation, space.
-- Any number of sessions may call it at any time; one of them does the work.
-- Returns: its work, one row for each task; no row if there was nothing to do. count is how many
-- messages a schedule sent, deliveries were rescued or pauses ended. After these tasks
-- another call at once has work: resumed, ticked, rescued, marked, copied, cleared, reclaimed.
-- Reports once when the clock is behind the last round's time.
-- Locks: the maintenance key, without waiting, until the transaction ends.
create or replace function posthaste.maintain()
returns table (task text, count bigint, detail text)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set max_parallel_workers_per_gather = 0 as $$
declare
  v_lost int;
  v_text text;
  v_ahead interval;
  r record;
begin
  -- In a copy no messages are sent automatically. With cursors of other transaction ids,
  -- slots would be considered free that are not.
  begin
    if coalesce(current_setting('posthaste.identity_checked', true), '') <> 'yes' then
      perform posthaste.check_identity();
    end if;
  exception when sqlstate 'PH503' then
    return query select 'refused', null::bigint, sqlerrm;
    return;
  end;
  -- Schedules have locks of their own, and do not wait for other upkeep.
  if posthaste.tick_in() = 0 then
    r := posthaste.tick();
    if r.ended > 0 then
      return query select 'resumed', r.ended::bigint, 'the end of its pause was reached'::text;
      return;
    end if;
    if r.sent + r.missed > 0 then
      return query select 'ticked', r.sent::bigint, format('%s sent, %s missed', r.sent, r.missed);
      return;
    end if;
  end if;
  if not pg_try_advisory_xact_lock(posthaste.lock_key(6, 0)) then
    return;
  end if;
  v_text := posthaste.rotate();
  if v_text is not null then
    return query select v_text, null::bigint, null::text;
    return;
  end if;
  v_lost := posthaste.rescue();
  if v_lost > 0 then
    return query select 'rescued', v_lost::bigint, format('%s deliveries', v_lost);
    return;
  end if;
  v_ahead := (select c.at - clock_timestamp() from posthaste.counted c);
  if v_ahead > interval '2 seconds' then
    -- Once, because counting stores the time again.
    return query select 'clock', null::bigint, format('the clock of the database was set back by %s or more', date_trunc('second', v_ahead));
  end if;
  if posthaste.count_up() then
    return query select 'counted', null::bigint, null::text;
  end if;
  perform posthaste.take_samples();
  perform posthaste.roll_up();
  if posthaste.forget_charts() then
    return query select 'forgotten', null::bigint, 'old figures for charts'::text;
    return;
  end if;
  perform posthaste.summarize();
  perform posthaste.forget_rows();
  perform posthaste.check_kinds();
  perform posthaste.forget_unique();
  perform posthaste.forget_cancelled();
  perform posthaste.forget_history();
  begin
    r := posthaste.reclaim();
  exception when lock_not_available then
    return query select 'kept', null::bigint, 'another transaction holds a lock on the ring';
    return;
  end;
  if r.slot is not null then
    return query select 'reclaimed', null::bigint, format('slot %s', r.slot);
  elsif r.reason like '%copied' then
    return query select 'copied', null::bigint, r.reason;
  elsif r.reason like '%cleared' then
    return query select 'cleared', null::bigint, r.reason;
  elsif r.reason like 'slot %' then
    return query select 'kept', null::bigint, r.reason;
  end if;
  -- Last, because it locks lanes until the transaction ends.
  perform posthaste.forget_buckets();
end $$;
