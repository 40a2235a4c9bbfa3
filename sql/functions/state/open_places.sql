-- posthaste.open_places: the places of a claim that are not settled, ascending.
-- Reads: settlements.
create or replace function posthaste.open_places(c posthaste.claims)
returns int[] language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  v_bits bit varying;
begin
  if c.places = 0 then
    return '{}';
  elsif c.single then
    return array(select g from generate_series(0, c.places - 1) g
                  where not exists (select from posthaste.settlements s where s.slot = c.slot and s.claim = c.id and s.part = g)
                  order by g);
  end if;
  select s.bits into v_bits from posthaste.settlements s
   where s.slot = c.slot and s.claim = c.id and s.part = 0
   order by s.slot, s.claim, s.part, s.number desc limit 1;
  if v_bits is null then
    return array(select generate_series(0, c.places - 1));
  end if;
  return array(select g from generate_series(0, c.places - 1) g where get_bit(v_bits, g) = 0 order by g);
end $$;
