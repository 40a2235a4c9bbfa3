-- posthaste.forget_rows: removes small rows that are not needed any more, in every round of
-- upkeep. The history, withdrawals and buckets of tokens have functions of their own.
-- By ctid: joins that were planned with few rows would compare each with all.
-- Reads: subscriptions, queue_settings, slots, claims, settlements. Deletes from: parked,
-- dedupe_keys, idempotency_keys, erased, limit_states, cancel_requests, ahead, ahead_keys.
create or replace function posthaste.forget_rows()
returns void language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
declare
  v_now timestamptz := clock_timestamp();
  v_newest record;
begin
  -- Rows that a concurrent settlement parked for a subscription when it ended. (A dead letter
  -- stays, and is discarded by its id; posthaste.free_number checks a number before it is used
  -- again.)
  delete from posthaste.parked z
   where z.ctid = any (array(
     select p.ctid
       from (select x.queue_id::bigint << 10 | x.number as subscriber from posthaste.subscriptions x where x.dropped_at > clock_timestamp() - interval '1 day') u
      cross join lateral (select y.ctid from posthaste.parked y where y.subscriber = u.subscriber order by y.subscriber limit 1000 for update skip locked) p));
  -- Keys whose window is over, except those that a sender is using again.
  delete from posthaste.dedupe_keys k
   where k.ctid = any (array(select d.ctid from posthaste.dedupe_keys d where d.until <= v_now order by d.until limit 10000 for update skip locked));
  delete from posthaste.idempotency_keys k
   where k.ctid = any (array(select i.ctid from posthaste.idempotency_keys i where i.until <= v_now order by i.until limit 10000 for update skip locked));
  -- Marks of erased messages that are not in the ring any more: the content of a slot is newer
  -- than the position that it was cleared to.
  delete from posthaste.erased x where x.pos <= (select min(s.cleared_to) from posthaste.slots s where s.live);
  -- Limit states that newer ones replaced.
  delete from posthaste.limit_states z
   where z.ctid = any (array(
     select old.ctid
       from posthaste.subscriptions u
      cross join lateral (select from posthaste.queue_settings q where q.id = u.queue_id and q.dropped_at is null offset 0) q
      cross join lateral (select x.id from posthaste.limit_states x where x.subscriber = u.queue_id::bigint << 10 | u.number
                           order by x.subscriber desc, x.id desc limit 1) newest
      cross join lateral (select x.ctid from posthaste.limit_states x where x.subscriber = u.queue_id::bigint << 10 | u.number and x.id < newest.id
                           order by x.id) old
      where u.dropped_at is null));
  -- Requests to cancel deliveries that have ended.
  delete from posthaste.cancel_requests z
   where z.ctid = any (array(
     select x.ctid from (select y.ctid, y.delivery from posthaste.cancel_requests y order by y.delivery limit 10000) x
      where posthaste.delivery_open(x.delivery) is not true));
  -- Notes of reading ahead in fair queues: all but a lane's newest row, and keys of earlier
  -- readings.
  for v_newest in
    select x.subscriber, x.lane, x.id, coalesce(x.reading, x.id) as reading
      from posthaste.subscriptions u join posthaste.queue_settings q on q.id = u.queue_id and q.dropped_at is null and q.fair
     cross join lateral generate_series(0, q.lanes - 1) g
     cross join lateral (
       select * from posthaste.ahead z where z.subscriber = u.queue_id::bigint << 10 | u.number and z.lane = g
        order by z.subscriber desc, z.lane desc, z.id desc limit 1) x
     where u.dropped_at is null
  loop
    delete from posthaste.ahead z where z.subscriber = v_newest.subscriber and z.lane = v_newest.lane and z.id < v_newest.id;
    delete from posthaste.ahead_keys k
     where k.ctid = any (array(select x.ctid from posthaste.ahead_keys x
                                where x.subscriber = v_newest.subscriber and x.lane = v_newest.lane and x.reading < v_newest.reading
                                order by x.reading, x.key limit 10000));
  end loop;
end $$;
