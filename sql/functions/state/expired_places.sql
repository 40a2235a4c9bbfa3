-- posthaste.expired_places: the places of a new claim's slice whose messages are too old to be
-- handed out.
-- Arguments: the claim before it is written; its queue's max_age; the time.
-- Returns: as the column expired of claims. Reads: entries.
create or replace function posthaste.expired_places(c posthaste.claims, p_max_age interval, t timestamptz)
returns bit varying language plpgsql stable set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan as $$
declare
  v_bits bit varying;
  v_place int;
begin
  c.id := coalesce(c.id, 0); -- which is in the numbers of deliveries
  -- The cheapest way for each part. Entries of the first have no time of their own to expire.
  for v_place in
    select d.place from posthaste.deliveries_of(c) d where c.part in (0, 3) and posthaste.too_old(d.created_at, null, p_max_age, t)
    union all
    select d.place from posthaste.deliveries_at(c, array(select generate_series(0, c.places - 1))) d
     where c.part in (1, 2) and posthaste.too_old(d.created_at, d.expires_at, p_max_age, t)
    union all
    select d.place from posthaste.keyed_rows(c, posthaste.live_slots()) d where c.part >= 4 and posthaste.too_old(d.created_at, d.expires_at, p_max_age, t)
  loop
    v_bits := set_bit(coalesce(v_bits, repeat('0', c.places)::bit varying), v_place, 1);
  end loop;
  return v_bits;
end $$;
