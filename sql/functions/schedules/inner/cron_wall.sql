-- posthaste.cron_wall: the first time on the wall that a cron line names, from a
-- whole minute on. The calendar only; zones are posthaste.next_tick's.
-- Returns: the time; null if there is none in nine years, in which every date
-- there is comes once. Tables: none.
create or replace function posthaste.cron_wall(c posthaste.cron, p_from timestamp)
returns timestamp language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
  d date := p_from::date;
  v_last date := p_from::date + 9 * 366;
  h int := extract(hour from p_from);
  m int := extract(minute from p_from);
  v_day boolean;
  v_weekday boolean;
begin
  while d <= v_last loop
    if (c.months >> extract(month from d)::int) & 1 = 0 then
      d := (date_trunc('month', d::timestamp) + interval '1 month')::date;
      h := 0;
      m := 0;
      continue;
    end if;
    v_day := (c.days >> extract(day from d)::int) & 1 = 1;
    v_weekday := (c.weekdays >> extract(dow from d)::int) & 1 = 1;
    if v_day and v_weekday or c.either and (v_day or v_weekday) then
      while h < 24 loop
        if (c.hours >> h) & 1 = 1 then
          while m < 60 loop
            if (c.minutes >> m) & 1 = 1 then
              return d + make_time(h, m, 0);
            end if;
            m := m + 1;
          end loop;
        end if;
        h := h + 1;
        m := 0;
      end loop;
    end if;
    d := d + 1;
    h := 0;
    m := 0;
  end loop;
  return null;
end $$;
