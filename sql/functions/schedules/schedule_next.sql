-- posthaste.schedule_next: the next tick of a schedule after a time. An interval counts from
-- that time.
-- Arguments: the spec, as of posthaste.schedule_put; its time zone; the time.
-- Errors: PH400 with the field. Tables: none.
create or replace function posthaste.schedule_next(spec text, time_zone text default 'UTC', after timestamptz default clock_timestamp())
returns timestamptz language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  s record := posthaste.schedule_spec(spec);
  v_next timestamptz;
begin
  if after is null or after not between '0001-01-01 00:00:00+00' and posthaste.last_time() then
    raise exception using errcode = 'PH400', column = 'after', message = 'after must be a time of the years 1 to 9999';
  end if;
  v_next := posthaste.next_tick(s.cron, s.every, posthaste.zone_name(time_zone), after);
  if v_next is null then
    raise exception using errcode = 'PH400', column = 'spec', message = format('the cron line %L never fires', spec),
      hint = 'none of its months has such a day';
  end if;
  return v_next;
end $$;
