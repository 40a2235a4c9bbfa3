-- posthaste.delivery_open: whether a delivery is not settled.
-- Returns: null if its claim is unknown. Reads: claims, settlements.
create or replace function posthaste.delivery_open(p_delivery bigint)
returns boolean language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  v_claim posthaste.claims;
begin
  select * into v_claim from posthaste.claims k where k.slot = (p_delivery >> 34) & 15 and k.id = p_delivery >> 12;
  if v_claim.id is null then
    return null;
  end if;
  return p_delivery & 4095 = any (posthaste.open_places(v_claim));
end $$;
