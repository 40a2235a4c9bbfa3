-- posthaste.schedule_spec: parses the spec of a schedule: a cron line of five fields, @hourly,
-- @daily, @midnight, @weekly, @monthly, @yearly or @annually, or every and a duration.
-- Returns: cron or every. Errors: PH400 with the field spec. Tables: none.
create or replace function posthaste.schedule_spec(p_spec text, out cron posthaste.cron, out every interval)
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  v_text text := lower(btrim(p_spec, E' \t') collate "C");
  f text[];
  v_hint text := 'a cron line such as ''30 2 * * mon-fri'', @daily, or ''every 90 seconds''';
begin
  if coalesce(v_text, '') = '' or octet_length(p_spec) > 255 then
    raise exception using errcode = 'PH400', column = 'spec', message = case when octet_length(p_spec) > 255 then 'spec is over 255 bytes' else 'spec must not be empty' end, hint = v_hint;
  end if;
  if v_text ~ '^every[[:space:]]' then
    begin
      every := substr(v_text, 7)::interval;
    exception when data_exception then
      raise exception using errcode = 'PH400', column = 'spec', message = format('%L is not a duration', substr(v_text, 7)), hint = v_hint;
    end;
    if extract(year from every) <> 0 or extract(month from every) <> 0 then
      raise exception using errcode = 'PH400', column = 'spec', message = 'months and years differ in length: an interval consists of weeks, days, hours, minutes and seconds',
        hint = 'use a cron line for days of months: ''0 0 1 * *''';
    end if;
    -- A day is 24 hours here.
    every := make_interval(secs => extract(epoch from every)::double precision);
    if every < '1 second' or every > '87600 hours' or every <> date_trunc('second', every) then
      raise exception using errcode = 'PH400', column = 'spec', message = 'an interval must be whole seconds, at least one second and at most ten years', hint = v_hint;
    end if;
    return;
  end if;
  v_text := case v_text
    when '@yearly' then '0 0 1 1 *' when '@annually' then '0 0 1 1 *' when '@monthly' then '0 0 1 * *' when '@weekly' then '0 0 * * 0'
    when '@daily' then '0 0 * * *' when '@midnight' then '0 0 * * *' when '@hourly' then '0 * * * *' else v_text end;
  f := regexp_split_to_array(v_text, E'[ \t]+');
  if cardinality(f) <> 5 then
    raise exception using errcode = 'PH400', column = 'spec', message = format('%L has %s fields, not five', p_spec, cardinality(f)), hint = v_hint;
  end if;
  cron.minutes := posthaste.cron_field(f[1], 'minute', 0, 59, null);
  cron.hours := posthaste.cron_field(f[2], 'hour', 0, 23, null);
  cron.days := posthaste.cron_field(f[3], 'day of the month', 1, 31, null);
  cron.months := posthaste.cron_field(f[4], 'month', 1, 12, '{jan,feb,mar,apr,may,jun,jul,aug,sep,oct,nov,dec}');
  cron.weekdays := posthaste.cron_field(f[5], 'day of the week', 0, 7, '{sun,mon,tue,wed,thu,fri,sat}');
  cron.either := f[3] not in ('*', '*/1') and f[5] not in ('*', '*/1');
end $$;
