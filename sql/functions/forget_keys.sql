-- posthaste.forget_keys: removes keys whose window is over, at most 10,000 a call,
-- but for those that somebody is just using anew.
-- Deletes from: dedupe_keys, idempotency_keys.
create or replace function posthaste.forget_keys()
returns void language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
declare
  v_now timestamptz := clock_timestamp();
begin
  -- By ctid: as a join, planned while there were few, this would compare
  -- each with all keys.
  delete from posthaste.dedupe_keys k
   where k.ctid = any (array(select d.ctid from posthaste.dedupe_keys d where d.until <= v_now order by d.until limit 10000 for update skip locked));
  delete from posthaste.idempotency_keys k
   where k.ctid = any (array(select i.ctid from posthaste.idempotency_keys i where i.until <= v_now order by i.until limit 10000 for update skip locked));
end $$;
