-- posthaste.forget_buckets: removes keys that are kept only for their bucket of tokens, if it
-- was full again five minutes ago or its limit was removed: at most 1,000 of a subscription.
-- Lanes that are being read are left for the next round.
-- Locks: lanes' readers, without waiting. Deletes from: keys.
create or replace function posthaste.forget_buckets()
returns void language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
declare
  v_now timestamptz := clock_timestamp();
  k record;
begin
  for k in
    select x.subscriber, x.lane, x.before, array_agg(x.key) as keys
      from (select u.queue_id::bigint << 10 | u.number as subscriber,
                   -- Since then each bucket was filled.
                   v_now - make_interval(secs => least(coalesce(q.key_burst / q.key_rate, 0), 1e9)) as before
              from posthaste.subscriptions u join posthaste.queue_settings q on q.id = u.queue_id and q.dropped_at is null and q.keyed
             where u.dropped_at is null) s
     cross join lateral (
       select z.subscriber, z.lane, z.key, s.before from posthaste.keys z
        where z.subscriber = s.subscriber and z.tokens_since < date_bin('5 minutes', s.before at time zone 'UTC', timestamp '2000-01-01')
          and z.tokens is not null and not z.blocked and z.paused_at is null and z.stopped_by is null
        order by z.tokens_since limit 1000) x
     group by x.subscriber, x.lane, x.before
     order by x.subscriber, x.lane
  loop
    continue when not posthaste.lock_reader(posthaste.reader_key((k.subscriber >> 10)::int, (k.subscriber & 1023)::int, k.lane, 0), false);
    -- Again, under the lane's lock.
    delete from posthaste.keys z
     where z.subscriber = k.subscriber and z.key = any (k.keys) and z.tokens_at <= k.before
       and not z.blocked and z.paused_at is null and z.stopped_by is null;
  end loop;
end $$;
