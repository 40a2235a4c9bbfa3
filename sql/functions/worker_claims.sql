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
     and posthaste.in_slots(c.slot, l.l0, l.l1, l.l2, l.l3, l.l4, l.l5, l.l6, l.l7, l.l8, l.l9, l.l10, l.l11, l.l12, l.l13, l.l14, l.l15)
   order by c.holder, c.number;
end $$;
