-- posthaste.option_rate: a rate option: {"limit": 50, "per": "1 second", "burst": 5}.
-- Returns: how many a second, and how many at once at most: by default what comes
-- together in a tenth of a second, and two at least, or one where no more than one
-- comes in a second. posthaste.rate_option tells
-- both as an option again.
-- Errors: PH400 with the option's name.
create or replace function posthaste.option_rate(p_options jsonb, p_name text, out rate float8, out burst float8)
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  o jsonb := nullif(p_options -> p_name, 'null');
  v_per float8;
begin
  if o is null then
    return;
  end if;
  if jsonb_typeof(o) <> 'object' or nullif(o -> 'limit', 'null') is null then
    raise exception using errcode = 'PH400', column = p_name, message = format('option %L must be an object with a limit', p_name),
      hint = format('for example {"%s": {"limit": 50, "per": "1 second"}}', p_name);
  end if;
  begin
    perform posthaste.check_options(o, array['limit', 'per', 'burst'], '{}');
    v_per := extract(epoch from coalesce(posthaste.option_interval(o, 'per'), '1 second'));
    burst := posthaste.option_int(o, 'burst', 1, 1000000);
    rate := posthaste.option_int(o, 'limit', 1, 1000000000);
  exception when sqlstate 'PH400' then
    raise exception using errcode = 'PH400', column = p_name, message = format('option %L: %s', p_name, sqlerrm);
  end;
  if v_per < 0.001 or v_per > 31622400 then
    raise exception using errcode = 'PH400', column = p_name,
      message = format('option %L: per must be 1 millisecond to 366 days, and is %s', p_name, o ->> 'per');
  end if;
  rate := rate / v_per;
  -- Two, or whoever comes a moment late for one would come late for all that follow.
  burst := coalesce(burst, greatest(case when rate > 1 then 2 else 1 end, ceil(rate / 10)));
end $$;
