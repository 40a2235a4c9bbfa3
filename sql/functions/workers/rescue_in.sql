-- posthaste.rescue_in: seconds until the first lease ends of another worker that does
-- not beat meanwhile, 0 if one has ended; null if there is no other. So those that
-- live need not wait for their next look to find that somebody is gone.
-- Arguments: worker, who asks: it need not watch over itself.
-- Tables: reads registrations.
create or replace function posthaste.rescue_in(p_worker bigint)
returns double precision language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  -- greatest() passes over null, which must stay.
  select case when count(*) > 0 then greatest(0, extract(epoch from
           min(greatest(w.heartbeat_at, pg_postmaster_start_time()) + w.lease) - clock_timestamp())) end::double precision
    from posthaste.registrations w where w.lost_at is null and w.ended_at is null and w.id <> p_worker
$$;
