-- posthaste.cron_wall: the first wall-clock time that matches a cron line, from a whole minute
-- on. It uses the calendar only; posthaste.next_tick handles time zones.
-- Returns: the time; null without one in nine years, in which every date occurs.
-- Tables: none.
-- there is comes once. Tables: none.
create or replace function posthaste.cron_wall(c posthaste.cron, p_from timestamp)
returns timestamp language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
  v_date date := p_from::date;
  v_last date := p_from::date + 9 * 366;
  h int := extract(hour from p_from);
  m int := extract(minute from p_from);
  v_day boolean;
  v_weekday boolean;
begin
  while v_date <= v_last loop
    if (c.months >> extract(month from v_date)::int) & 1 = 0 then
      v_date := (date_trunc('month', v_date::timestamp) + interval '1 month')::date;
      h := 0;
      m := 0;
      continue;
    end if;
    v_day := (c.days >> extract(day from v_date)::int) & 1 = 1;
    v_weekday := (c.weekdays >> extract(dow from v_date)::int) & 1 = 1;
    if v_day and v_weekday or c.either and (v_day or v_weekday) then
      while h < 24 loop
        if (c.hours >> h) & 1 = 1 then
          while m < 60 loop
            if (c.minutes >> m) & 1 = 1 then
              return v_date + make_time(h, m, 0);
            end if;
            m := m + 1;
          end loop;
        end if;
        h := h + 1;
        m := 0;
      end loop;
    end if;
    v_date := v_date + 1;
    h := 0;
    m := 0;
  end loop;
  return null;
end $$;
