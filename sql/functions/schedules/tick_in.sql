-- posthaste.tick_in: seconds until the next tick of a schedule or the next end of a pause, 0 if one
-- is due; null without one. It is one probe of an index for each, which every heartbeat makes.
-- Tables: reads schedule_settings, pauses.
create or replace function posthaste.tick_in()
returns double precision language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  -- greatest() ignores null, which must be returned; least() ignores it as well.
  select case when next.at is not null then greatest(0, extract(epoch from next.at - clock_timestamp())) end::double precision
    from (select least((select min(x.next_at) from posthaste.schedule_settings x where x.paused_at is null),
                       (select min(p.until) from posthaste.pauses p)) as at) next
$$;
