-- posthaste.worker_overdue: whether a registered worker has missed its lease. While the
-- database was down no worker could send heartbeats: the lease runs from its start at the
-- earliest.
create or replace function posthaste.worker_overdue(w posthaste.registrations)
returns boolean language sql volatile set search_path = pg_catalog, pg_temp as
$$ select w.lost_at is null and w.ended_at is null
          and greatest(w.heartbeat_at, pg_postmaster_start_time()) + w.lease < clock_timestamp() $$;
