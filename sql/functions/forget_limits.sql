-- posthaste.forget_limits: removes rows of limits that newer ones replaced.
-- Deletes from: limit_states.
create or replace function posthaste.forget_limits()
returns void language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
begin
  -- By ctid: as a join this may compare each with all subscriptions.
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
end $$;
