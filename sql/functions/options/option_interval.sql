-- posthaste.option_interval: a duration option, not negative; null if it is absent. With days it
-- must be above zero and at most that many days. Its text is read as an interval.
create or replace function posthaste.option_interval(p_options jsonb, p_name text, p_days int default null)
returns interval language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  v interval;
begin
  v := posthaste.option_text(p_options, p_name)::interval;
  if not isfinite(v) then -- from PostgreSQL 17 on
    raise data_exception;
  end if;
  if v < '0' then
    raise exception using errcode = 'PH400', column = p_name, message = format('option %L must not be negative', p_name);
  elsif v = '0' and p_days is not null or v > make_interval(days => p_days) then
    raise exception using errcode = 'PH400', column = p_name, message = format('option %L must be above zero and at most %s days', p_name, p_days);
  end if;
  return v;
exception when data_exception then
  raise exception using errcode = 'PH400', column = p_name,
    message = format('option %L is not a duration: %L', p_name, p_options ->> p_name), hint = 'for example ''30 seconds'' or ''1 hour''';
end $$;
