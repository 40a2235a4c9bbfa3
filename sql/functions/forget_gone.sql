-- posthaste.forget_gone: removes what a settlement that was under way when its
-- subscription ended parked for it. (A dead letter stays, and is discarded by its id.)
-- Looks at the subscriptions that ended within a day; a number that is given anew is
-- looked at by posthaste.free_number.
-- Deletes from: parked.
create or replace function posthaste.forget_gone()
returns void language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
begin
  delete from posthaste.parked z
   where z.ctid = any (array(
     select p.ctid
       from (select x.queue_id::bigint << 10 | x.number as subscriber from posthaste.subscriptions x where x.dropped_at > clock_timestamp() - interval '1 day') u
      cross join lateral (select y.ctid from posthaste.parked y where y.subscriber = u.subscriber order by y.subscriber limit 1000 for update skip locked) p));
end $$;
