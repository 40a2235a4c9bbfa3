-- posthaste.tick_in: seconds until the next tick of a schedule, 0 if one is due; null without
-- one. It is one probe of an index, which every heartbeat makes.
-- Tables: reads schedule_settings.
create or replace function posthaste.tick_in()
returns double precision language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  -- greatest() ignores null, which must be returned.
  select case when min(x.next_at) is not null then greatest(0, extract(epoch from min(x.next_at) - clock_timestamp())) end::double precision
    from posthaste.schedule_settings x where x.paused_at is null
$$;
