-- posthaste.doctor_stranded: messages of keyed queues that could start, but that no claim will
-- look at, because no event names their key. That must not happen.
-- It does not report messages that wait for a reason: their queue or key is paused, or stopped
-- by a dead letter; they wait for their time, a token, their turn, or for a running message of
-- their key; or an event names their key, and no claim has run since.
-- It looks at no more than 10,000 keys of a subscription.
-- Reads: keys, parked, and the tables of lane_events.
create or replace function posthaste.doctor_stranded()
returns table ("check" text, level text, message text, hint text, queue text, subscription text) language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
declare
  v_live posthaste.live := posthaste.live_slots();
  v_before timestamptz := clock_timestamp() - posthaste.patience();
  v_found record;
  v_cursor posthaste.claims;
  v_read record;
  v_lane bigint := -1;
  v_busy bigint[];
  v_told jsonb; -- the keys of events, as an object, which is fast to search
  v_count int := 0;
begin
  for v_found in
    select q.id, s.number, z.lane, q.name as queue, s.name as subscription, z.key, z.hash, p.message_id, p.since
      from posthaste.queue_settings q
     cross join lateral (select * from posthaste.subscriptions s where s.queue_id = q.id and s.dropped_at is null order by s.number) s
     cross join lateral (
       select * from posthaste.keys z
        where z.subscriber = q.id::bigint << 10 | s.number and z.lane >= 0
          and z.blocked and z.paused_at is null and z.stopped_by is null and z.turn is null and not z.waits and coalesce(z.wake_at < v_before, true)
        order by z.subscriber, z.lane limit 10000) z
     cross join lateral (
       select x.message_id, greatest(x.not_before, x.parked_at) as since from posthaste.parked x
        where x.subscriber = z.subscriber and x.key = z.key and (x.ord, x.message_id) >= (z.low_ord, z.low_id)
        order by x.ord, x.message_id limit 1) p
     where q.keyed and q.dropped_at is null and q.paused_at is null and p.since < v_before
     order by q.id, s.number, z.lane
  loop
    -- Once for each lane: there may be thousands of events to read.
    if posthaste.reader_key(v_found.id, v_found.number, v_found.lane, 1) <> v_lane then
      v_lane := posthaste.reader_key(v_found.id, v_found.number, v_found.lane, 1);
      v_cursor := posthaste.cursor_of(v_lane, v_live);
      v_busy := posthaste.lane_busy(coalesce(v_cursor.open, '{}'), pg_current_snapshot());
      v_read := posthaste.lane_events(v_found.id, v_found.number, v_found.lane, v_cursor, pg_current_snapshot(), greatest(clock_timestamp(), v_cursor.t1), v_live);
      v_told := (select coalesce(jsonb_object_agg(o ->> 'key', true), '{}') from jsonb_array_elements(v_read.events) o where o ? 'key');
    end if;
    -- After the clock was set back, the times of events and of keys are not comparable.
    continue when not v_read.complete or v_cursor.t1 > clock_timestamp() or v_found.hash = any (v_busy) or v_told ? v_found.key;
    -- The same conditions again, later than the events were read: a claim or an operator may
    -- have changed the key meanwhile.
    continue when not exists (
      select from posthaste.keys z
        join posthaste.parked p on p.subscriber = z.subscriber and p.key = z.key and p.message_id = v_found.message_id
        join posthaste.queue_settings q on q.id = v_found.id and q.paused_at is null
       where z.subscriber = v_found.id::bigint << 10 | v_found.number and z.key = v_found.key
         and z.blocked and z.paused_at is null and z.stopped_by is null and z.turn is null and not z.waits and coalesce(z.wake_at < v_before, true)
         and greatest(p.not_before, p.parked_at) < v_before);
    return query select 'stranded', 'fault', format('message %s of key %L has been ready for %s, and no claim will look at it', v_found.message_id, v_found.key, date_trunc('second', clock_timestamp() - v_found.since)),
      case when v_found.key <> '' then 'pause its key and resume it, so that the next claim looks at it, and report this bug'
           else 'report this bug' end,
      v_found.queue, v_found.subscription;
    v_count := v_count + 1;
    exit when v_count = 100;
  end loop;
end $$;
