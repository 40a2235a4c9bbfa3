-- posthaste.worker_unregister: ends a registration. Its unsettled deliveries are rescued.
-- Locks: the worker's key, exclusive. Updates: registrations.
create or replace function posthaste.worker_unregister(p_worker bigint)
returns void language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform pg_advisory_xact_lock(posthaste.lock_key(5, p_worker));
  update posthaste.registrations set ended_at = clock_timestamp() where id = p_worker and ended_at is null and lost_at is null;
end $$;
