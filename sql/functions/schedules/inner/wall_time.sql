-- posthaste.wall_time: the first moment at which the clocks of a zone show a wall-clock time or
-- a later one. A time that occurs twice, when clocks are set back, means the first occurrence;
-- one that is skipped, when clocks are set forward, means the moment of the change.
-- Arguments: the zone; the wall-clock time, in whole seconds. Tables: none.
create or replace function posthaste.wall_time(p_zone text, p_wall timestamp)
returns timestamptz language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  -- For a repeated time PostgreSQL returns the second occurrence; for a skipped time it uses
  -- the offset before the change.
  t timestamptz := p_wall at time zone p_zone;
  v_over interval := (t at time zone p_zone) - p_wall;
  v_earlier timestamptz;
begin
  if v_over <> '0' then
    return posthaste.zone_change(p_zone, t - v_over, t);
  end if;
  v_earlier := t - interval '24 hours';
  v_earlier := t - (((v_earlier at time zone p_zone) - (v_earlier at time zone 'UTC')) - ((t at time zone p_zone) - (t at time zone 'UTC')));
  if v_earlier < t and (v_earlier at time zone p_zone) = p_wall then
    return v_earlier;
  end if;
  return t;
end $$;
