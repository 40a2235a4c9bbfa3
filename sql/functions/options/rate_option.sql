-- posthaste.rate_option: the inverse of posthaste.option_rate. It uses the shortest of second,
-- minute, hour and day in which the limit is a whole number.
-- Arguments: the rate per second, the burst. Returns: null without a rate.
create or replace function posthaste.rate_option(p_rate float8, p_burst float8)
returns jsonb language sql immutable parallel safe set search_path = pg_catalog, pg_temp as $$
  select case when p_rate is not null then coalesce(
    (select jsonb_build_object('limit', round((p_rate * u.seconds)::numeric)::int, 'per', u.per, 'burst', p_burst::int)
       from (values (1, '1 second'), (60, '1 minute'), (3600, '1 hour'), (86400, '1 day')) u (seconds, per)
      where p_rate * u.seconds between 1 and 2e9 and abs(p_rate * u.seconds - round(p_rate * u.seconds)) < 1e-9 * p_rate * u.seconds
      order by u.seconds limit 1),
    jsonb_build_object('limit', 1, 'per', make_interval(secs => 1 / p_rate)::text, 'burst', p_burst::int)) end $$;
