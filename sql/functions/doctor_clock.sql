-- posthaste.doctor_clock: was the database's clock set back? Readers never go back
-- in time, so until it has caught up nothing new falls due.
-- Reads: claims, counted.
create or replace function posthaste.doctor_clock()
returns table (level text, message text, hint text, queue text, subscription text) language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
  l posthaste.live := posthaste.live_slots();
  v_ahead interval;
begin
  select greatest((select c.at from posthaste.counted c),
                  max((select y.t1 from posthaste.claims y
                        where y.reader = posthaste.reader_key(s.queue_id, s.number, g, 1)
                          and posthaste.in_slots(y.slot, l.a, l.b, l.c, l.d, l.e, l.f)
                        order by y.reader desc, y.seq desc limit 1))) - clock_timestamp() into v_ahead
    from posthaste.subscriptions s join posthaste.queue_settings q on q.id = s.queue_id cross join generate_series(0, q.lanes - 1) g
   where s.dropped_at is null;
  if v_ahead > interval '2 seconds' then
    return query select 'warning', format('the clock of the database was set back by %s', date_trunc('second', v_ahead)),
      'messages and retries fall due when it has caught up; fresh ones are handed out', null::text, null::text;
  end if;
end $$;
