-- posthaste.option_wait: a duration option as seconds from now, null if it is
-- not given. What lies beyond all timestamps is refused.
create or replace function posthaste.option_wait(p_options jsonb, p_name text)
returns double precision language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  v float8 := extract(epoch from posthaste.option_interval(p_options, p_name));
begin
  if v > 9e12 then
    raise exception using errcode = 'PH400', column = p_name,
      message = format('%s is no duration that ends: %s seconds (at most 9e12)', p_name, v);
  end if;
  return v;
end $$;
