-- posthaste.bits_of: a bit string in which the given places are set.
create or replace function posthaste.bits_of(p_places int[])
returns bit varying language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
  v_bits bit varying := repeat('0', (select max(p) from unnest(p_places) p) + 1)::bit varying;
  p int;
begin
  foreach p in array p_places loop
    v_bits := set_bit(v_bits, p, 1);
  end loop;
  return v_bits;
end $$;
