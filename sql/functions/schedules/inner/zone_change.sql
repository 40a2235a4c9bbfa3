-- posthaste.zone_change: when a zone's clocks change between two times with different offsets
-- from UTC and only one change between them.
-- Arguments: the zone; two times in whole seconds.
-- Returns: the first second with the new offset. Tables: none.
create or replace function posthaste.zone_change(p_zone text, p_low timestamptz, p_high timestamptz)
returns timestamptz language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  v_old interval := (p_low at time zone p_zone) - (p_low at time zone 'UTC');
  v_low bigint := extract(epoch from p_low);
  v_high bigint := extract(epoch from p_high);
  v_middle bigint;
  t timestamptz;
begin
  while v_high - v_low > 1 loop
    v_middle := (v_low + v_high) / 2;
    t := to_timestamp(v_middle);
    if (t at time zone p_zone) - (t at time zone 'UTC') = v_old then
      v_low := v_middle;
    else
      v_high := v_middle;
    end if;
  end loop;
  return to_timestamp(v_high);
end $$;
