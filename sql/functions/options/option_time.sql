-- posthaste.option_time: a time option in ISO 8601 with a time zone. Without a zone, or in
-- another notation, its meaning would depend on the settings of the session.
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
    message = format('option %L is not a time with a time zone: %L', p_name, v_text), hint = 'for example 2030-01-31T12:00:00Z, or to_jsonb of a timestamptz';
end $$;
