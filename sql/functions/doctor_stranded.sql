-- posthaste.doctor_stranded: which messages of keyed queues could start, and nothing is
-- on its way that would have a claim look at them? That must not happen.
-- Not so: their queue or key is paused, or stopped by a dead message; they wait for
-- their time, a token, their turn, or for one of their key that runs; or nobody claimed
-- since an event told of them.
-- Reads: keys, parked, and what lane_events reads.
create or replace function posthaste.doctor_stranded()
returns table (level text, message text, hint text, queue text, subscription text) language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
declare
  l posthaste.live := posthaste.live_slots();
  v_before timestamptz := clock_timestamp() - posthaste.patience();
  r record;
  c posthaste.claims;
  e record;
  v_lane bigint := -1;
  v_busy bigint[];
  v_events text[];
  v_told int := 0;
begin
  for r in
    select q.id, s.number, z.lane, q.name as queue, s.name as subscription, z.key, z.hash, p.message_id, p.since
      from posthaste.queue_settings q
     cross join lateral (select * from posthaste.subscriptions s where s.queue_id = q.id and s.dropped_at is null order by s.number) s
     cross join lateral (
       select * from posthaste.keys z
        where z.subscriber = q.id::bigint << 10 | s.number and z.blocked and z.paused_at is null and z.stopped_by is null and z.turn is null and not z.waits
          and coalesce(z.wake_at < v_before, true)
        order by z.subscriber, z.lane, z.hash) z
     cross join lateral (
       select x.message_id, greatest(x.not_before, x.parked_at) as since from posthaste.parked x
        where x.subscriber = z.subscriber and x.key = z.key and (x.ord, x.message_id) >= (z.low_ord, z.low_id)
        order by x.ord, x.message_id limit 1) p
     where q.keyed and q.dropped_at is null and q.paused_at is null and p.since < v_before
  loop
    -- By lanes, for a claim may have thousands of events to read.
    if posthaste.reader_key(r.id, r.number, r.lane, 1) <> v_lane then
      v_lane := posthaste.reader_key(r.id, r.number, r.lane, 1);
      c := posthaste.cursor_of(v_lane, l);
      v_busy := posthaste.lane_busy(coalesce(c.open, '{}'), posthaste.snapshot_now());
      e := posthaste.lane_events(r.id, r.number, r.lane, c, pg_current_snapshot(), greatest(clock_timestamp(), c.t1), l);
      v_events := array(select o ->> 'key' from jsonb_array_elements(e.events) o);
    end if;
    continue when not e.complete or r.hash = any (v_busy) or r.key = any (v_events);
    -- Anew: a claim may have come to it meanwhile.
    continue when not exists (
      select from posthaste.keys z join posthaste.parked p on p.subscriber = z.subscriber and p.key = z.key and p.message_id = r.message_id
       where z.subscriber = r.id::bigint << 10 | r.number and z.key = r.key and z.blocked and z.turn is null and not z.waits);
    return query select 'fault', format('message %s of key %L could have started %s ago, and no claim looks at it', r.message_id, r.key, date_trunc('second', clock_timestamp() - r.since)),
      'pause its key and resume it, which has the next claim look at it, and report this: it must not happen', r.queue, r.subscription;
    v_told := v_told + 1;
    exit when v_told = 100;
  end loop;
end $$;
