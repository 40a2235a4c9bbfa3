-- posthaste.places_of: the positions of a claim's slice with their places, or
-- nothing if any row of it is gone: counting what is left would number wrong.
-- Arguments: claim id. Reads: claims, entries.
create or replace function posthaste.places_of(p_claim bigint)
returns table (pos bigint, place int) language plpgsql stable rows 1000
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off as $$
declare
  c posthaste.claims;
begin
  select * into c from posthaste.claims k where k.slot = (p_claim >> 22) & 15 and k.id = p_claim;
  if c.id is null then
    return;
  end if;
  return query select d.pos, d.place from posthaste.deliveries_of(c) d;
exception when sqlstate 'PH409' then
  return;
end $$;
