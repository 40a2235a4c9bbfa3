-- posthaste.forget_gone: removes what a settlement that was under way when its
-- subscription ended parked, or buried, for it.
-- Looks at the subscriptions that ended within the last hour.
-- Deletes from: parked, dead_letter_entries.
create or replace function posthaste.forget_gone()
returns void language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  u posthaste.subscriptions;
begin
  for u in select * from posthaste.subscriptions x where x.dropped_at > clock_timestamp() - interval '1 hour' loop
    delete from posthaste.parked p where p.subscriber = (u.queue_id::bigint << 10 | u.number);
    -- By when they died, for there is no index by subscription.
    delete from posthaste.dead_letter_entries d
     where d.died_at > u.dropped_at - interval '1 minute' and d.queue_id = u.queue_id and d.subscription = u.number;
  end loop;
end $$;
