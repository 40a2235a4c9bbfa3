-- posthaste.claim_open: whether a claim has deliveries that are not settled.
-- Reads: settlements.
create or replace function posthaste.claim_open(c posthaste.claims)
returns boolean language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off as $$
begin
  if c.places = 0 then
    return false;
  elsif c.single then
    return (select count(*) from posthaste.settlements s where s.slot = c.slot and s.claim = c.id) < c.places;
  end if;
  return coalesce((select bit_count(s.bits) from posthaste.settlements s
                    where s.slot = c.slot and s.claim = c.id and s.part = 0
                    order by s.slot, s.claim, s.part, s.number desc limit 1), 0) < c.places;
end $$;
