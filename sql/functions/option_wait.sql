-- posthaste.option_wait: a duration option as seconds from now, null if it is
-- not given. What reaches beyond the year 9999 is refused.
create or replace function posthaste.option_wait(p_options jsonb, p_name text)
returns double precision language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  v float8 := extract(epoch from posthaste.option_interval(p_options, p_name));
begin
  if v > 9e12 or clock_timestamp() + make_interval(secs => v) >= posthaste.last_time() then
    raise exception using errcode = 'PH400', column = p_name, message = format('%s reaches beyond the year 9999: %s seconds', p_name, v);
  end if;
  return v;
end $$;
