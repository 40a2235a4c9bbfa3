-- posthaste.option_int: an integer option within bounds; null if it is absent.
create or replace function posthaste.option_int(p_options jsonb, p_name text, p_min bigint, p_max bigint)
returns int language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
  v numeric;
begin
  if jsonb_typeof(p_options -> p_name) is distinct from 'number' then
    if p_options -> p_name is null or jsonb_typeof(p_options -> p_name) = 'null' then
      return null;
    end if;
    raise exception using errcode = 'PH400', column = p_name, message = format('option %L must be a number, got a %s', p_name, jsonb_typeof(p_options -> p_name));
  end if;
  v := (p_options ->> p_name)::numeric;
  if v <> trunc(v) or v not between p_min and p_max then
    raise exception using errcode = 'PH400', column = p_name, message = format('option %L must be a whole number from %s to %s, got %s', p_name, p_min, p_max, v);
  end if;
  return v;
end $$;
