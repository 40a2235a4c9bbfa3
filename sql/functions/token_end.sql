-- posthaste.token_end: when a new token expires, by its options expires_at or
-- expires_in. Returns: null for never. Errors: PH400.
create or replace function posthaste.token_end(p_options jsonb)
returns timestamptz language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  v_in interval := posthaste.option_interval(p_options, 'expires_in');
  v_at timestamptz := posthaste.option_time(p_options, 'expires_at');
  v_end timestamptz;
begin
  if v_in is not null and v_at is not null then
    raise exception using errcode = 'PH400', column = 'expires_in', message = 'expires_in excludes expires_at';
  end if;
  begin
    v_end := coalesce(v_at, clock_timestamp() + v_in);
  exception when data_exception then
    raise exception using errcode = 'PH400', column = case when v_at is null then 'expires_in' else 'expires_at' end,
      message = 'this is no time that a token can expire at', hint = 'for example expires_at ''2030-01-31T12:00:00Z'', or expires_in ''90 days''';
  end;
  if v_end <= clock_timestamp() or v_end >= posthaste.last_time() then
    raise exception using errcode = 'PH400', column = case when v_at is null then 'expires_in' else 'expires_at' end,
      message = 'a token must expire at a time that comes, before the last day of the year 9999';
  end if;
  return v_end;
end $$;
