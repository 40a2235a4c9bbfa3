-- posthaste.forget_limits: removes rows of limits that newer ones replaced.
-- Deletes from: limit_states.
create or replace function posthaste.forget_limits()
returns void language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
begin
  delete from posthaste.limit_states z
   using (select u.queue_id::bigint << 10 | u.number as subscriber
            from posthaste.subscriptions u join posthaste.queue_settings q on q.id = u.queue_id and q.dropped_at is null
           where u.dropped_at is null) s
   cross join lateral (select x.id from posthaste.limit_states x where x.subscriber = s.subscriber order by x.subscriber desc, x.id desc limit 1) newest
   where z.subscriber = s.subscriber and z.id < newest.id;
end $$;
