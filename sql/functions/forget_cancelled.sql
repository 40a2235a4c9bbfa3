-- posthaste.forget_cancelled: removes rows of cancelled whose slots are reclaimed,
-- at most 10,000 a call. Reads: slots. Deletes from: cancelled.
create or replace function posthaste.forget_cancelled()
returns void language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
begin
  delete from posthaste.cancelled k
   where (k.pos, k.subscriber) in (
     select x.pos, x.subscriber
       from (select s.epoch << 22 as lo, (s.epoch + 1) << 22 as hi from posthaste.slots s where not s.live
             -- And whatever lies before the whole ring.
             union all select 0, min(s.epoch) << 22 from posthaste.slots s where s.live) r
      cross join lateral (select y.pos, y.subscriber from posthaste.cancelled y where y.pos >= r.lo and y.pos < r.hi order by y.pos) x
      limit 10000);
end $$;
