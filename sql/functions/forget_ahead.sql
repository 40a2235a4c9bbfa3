-- posthaste.forget_ahead: removes what was noted while fair queues were read ahead and
-- is of no use any more: of each lane all rows but the newest, and keys of earlier
-- readings, at most 10,000 a lane.
-- Deletes from: ahead, ahead_keys.
create or replace function posthaste.forget_ahead()
returns void language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
declare
  a record;
begin
  for a in
    select x.subscriber, x.lane, x.id, coalesce(x.reading, x.id) as reading
      from posthaste.subscriptions u join posthaste.queue_settings q on q.id = u.queue_id and q.dropped_at is null and q.fair
     cross join lateral generate_series(0, q.lanes - 1) g
     cross join lateral (
       select * from posthaste.ahead z where z.subscriber = u.queue_id::bigint << 10 | u.number and z.lane = g
        order by z.subscriber desc, z.lane desc, z.id desc limit 1) x
     where u.dropped_at is null
  loop
    delete from posthaste.ahead z where z.subscriber = a.subscriber and z.lane = a.lane and z.id < a.id;
    delete from posthaste.ahead_keys k
     -- By ctid: as a join this may compare each with all keys.
     where k.ctid = any (array(select x.ctid from posthaste.ahead_keys x
                                where x.subscriber = a.subscriber and x.lane = a.lane and x.reading < a.reading
                                order by x.reading, x.key limit 10000));
  end loop;
end $$;
