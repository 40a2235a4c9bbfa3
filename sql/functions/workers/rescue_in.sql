-- posthaste.rescue_in: seconds until the first lease of another worker ends without a
-- heartbeat, 0 if one has ended; null if there is no other worker. So live workers need not
-- wait for their next look to detect a lost one.
-- Arguments: worker: the caller, which need not watch itself.
-- Tables: reads registrations.
create or replace function posthaste.rescue_in(p_worker bigint)
returns double precision language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  -- greatest() ignores null, which must be returned.
  select case when count(*) > 0 then greatest(0, extract(epoch from
           min(greatest(w.heartbeat_at, pg_postmaster_start_time()) + w.lease) - clock_timestamp())) end::double precision
    from posthaste.registrations w where w.lost_at is null and w.ended_at is null and w.id <> p_worker
$$;
