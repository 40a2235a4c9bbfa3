-- posthaste.worker_claims: a worker's claims from a number on that have places.
-- Reads: claims.
create or replace function posthaste.worker_claims(p_worker bigint, p_from bigint)
returns setof posthaste.claims language plpgsql volatile rows 10
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off as $$
declare
  l posthaste.live := posthaste.live_slots();
begin
  return query select c.* from posthaste.claims c
   where c.holder = p_worker and c.number >= p_from
     and posthaste.in_slots(c.slot, l.a, l.b, l.c, l.d, l.e, l.f)
   order by c.holder, c.number;
end $$;
