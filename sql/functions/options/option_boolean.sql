-- posthaste.option_boolean: a boolean option, checked for its type.
create or replace function posthaste.option_boolean(p_options jsonb, p_name text, p_default boolean)
returns boolean language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
  if jsonb_typeof(p_options -> p_name) not in ('boolean', 'null') then
    raise exception using errcode = 'PH400', column = p_name,
      message = format('option %L must be true or false, got a %s', p_name, jsonb_typeof(p_options -> p_name));
  end if;
  return coalesce((p_options ->> p_name)::boolean, p_default);
end $$;
