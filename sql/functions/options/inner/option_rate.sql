-- posthaste.option_rate: a rate option: {"limit": 50, "per": "1 second", "burst": 5}.
-- Returns: the rate per second, and the burst. The default burst is a tenth of the rate, and
-- at least 2, or 1 for rates of at most one a second.
-- Errors: PH400 with the option's name. posthaste.rate_option is the inverse.
create or replace function posthaste.option_rate(p_options jsonb, p_name text, out rate float8, out burst float8)
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  v_option jsonb := nullif(p_options -> p_name, 'null');
  v_per float8;
begin
  if v_option is null then
    return;
  end if;
  if jsonb_typeof(v_option) <> 'object' or nullif(v_option -> 'limit', 'null') is null then
    raise exception using errcode = 'PH400', column = p_name, message = format('option %L must be an object with a limit', p_name),
      hint = format('for example {"%s": {"limit": 50, "per": "1 second"}}', p_name);
  end if;
  begin
    perform posthaste.check_options(v_option, array['limit', 'per', 'burst'], '{}');
    v_per := extract(epoch from coalesce(posthaste.option_interval(v_option, 'per'), '1 second'));
    burst := posthaste.option_int(v_option, 'burst', 1, 1000000);
    rate := posthaste.option_int(v_option, 'limit', 1, 1000000000);
  exception when sqlstate 'PH400' then
    raise exception using errcode = 'PH400', column = p_name, message = format('option %L: %s', p_name, sqlerrm);
  end;
  if v_per < 0.001 or v_per > 31622400 then
    raise exception using errcode = 'PH400', column = p_name,
      message = format('option %L: per must be 1 millisecond to 366 days, got %s', p_name, v_option ->> 'per');
  end if;
  rate := rate / v_per;
  -- At least 2: with 1, a single late claim would delay all later ones.
  burst := coalesce(burst, greatest(case when rate > 1 then 2 else 1 end, ceil(rate / 10)));
end $$;
