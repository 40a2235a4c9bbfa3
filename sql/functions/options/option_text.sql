-- posthaste.option_text: a text option, checked for its type.
create or replace function posthaste.option_text(p_options jsonb, p_name text)
returns text language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
  if jsonb_typeof(p_options -> p_name) not in ('string', 'null') then
    raise exception using errcode = 'PH400', column = p_name, message = format('option %L must be a string, got a %s', p_name, jsonb_typeof(p_options -> p_name));
  end if;
  return p_options ->> p_name;
end $$;
