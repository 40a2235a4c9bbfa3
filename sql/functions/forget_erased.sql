-- posthaste.forget_erased: removes the marks of erased messages that the ring has
-- nothing of any more. Reads: slots. Deletes from: erased.
create or replace function posthaste.forget_erased()
returns void language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
begin
  -- What a slot has lies beyond what it was cleared to.
  delete from posthaste.erased x where x.pos <= (select min(s.cleared_to) from posthaste.slots s where s.live);
end $$;
