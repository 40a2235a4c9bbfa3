-- posthaste.next_tick: the tick of a schedule after another one, or after any time for a cron
-- line.
-- A line that names every hour follows elapsed time: it ticks whenever the clocks of the zone
-- show one of its minutes, so that every 15 minutes stays every 15 minutes when clocks change.
-- Other lines name times of a day: each comes once, at the moment of posthaste.wall_time.
-- Returns: the tick, or null. Tables: none.
create or replace function posthaste.next_tick(c posthaste.cron, p_every interval, p_zone text, p_after timestamptz)
returns timestamptz language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  v_wall timestamp;
  t timestamptz;
  v_from timestamptz := date_trunc('second', p_after) + interval '1 second';
  v_offset interval;
  v_until timestamptz;
begin
  if p_every is not null then
    return p_after + p_every;
  end if;
  if c.hours <> (1 << 24) - 1 then
    v_wall := date_trunc('minute', p_after at time zone p_zone);
    loop
      -- In an hour that repeats, times in the past are skipped.
      v_wall := posthaste.cron_wall(c, v_wall + interval '1 minute');
      t := posthaste.wall_time(p_zone, v_wall);
      if v_wall is null or t > p_after then
        return t;
      end if;
    end loop;
  end if;
  loop
    v_offset := (v_from at time zone p_zone) - (v_from at time zone 'UTC');
    v_wall := posthaste.cron_wall(c, date_trunc('minute', (v_from at time zone p_zone) + interval '59 seconds'));
    if v_wall is null then
      return null;
    end if;
    t := (v_wall - v_offset) at time zone 'UTC';
    v_until := v_from + interval '48 hours';
    if (v_until at time zone p_zone) - (v_until at time zone 'UTC') <> v_offset then
      v_until := posthaste.zone_change(p_zone, v_from, v_until);
      if t < v_until then
        return t;
      end if;
      v_from := v_until;
    elsif t < v_until then
      return t;
    else
      -- Clocks are never set by more than a day, so earlier times need no check.
      v_from := greatest(v_until, t - interval '72 hours');
    end if;
  end loop;
end $$;
