-- posthaste.option_time: a time option as text, with its zone: without one, or in another
-- notation than ISO 8601, it would mean what the caller's session says.
create or replace function posthaste.option_time(p_options jsonb, p_name text)
returns timestamptz language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  v_text text := posthaste.option_text(p_options, p_name);
begin
  if v_text !~ '^[0-9]{4,6}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]+)?)?([Zz]|[+-][0-9]{2}(:?[0-9]{2}(:[0-9]{2})?)?)$' then
    raise invalid_datetime_format;
  end if;
  return v_text::timestamptz;
exception when data_exception then
  raise exception using errcode = 'PH400', column = p_name,
    message = format('option %L is no time with its zone: %L', p_name, v_text), hint = 'for example 2030-01-31T12:00:00Z, or what to_jsonb makes of a timestamptz';
end $$;
