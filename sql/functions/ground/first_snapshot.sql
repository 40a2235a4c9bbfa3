-- posthaste.first_snapshot: a snapshot that sees nothing of this transaction nor of any other
-- running one, at every isolation level. The readers of a new subscription start here.
create or replace function posthaste.first_snapshot()
returns pg_snapshot language sql volatile set search_path = pg_catalog, pg_temp as
$$ select format('%s:%s:', pg_snapshot_xmin(s), pg_snapshot_xmin(s))::pg_snapshot
     from (select case when pg_current_xact_id() < pg_snapshot_xmin(pg_current_snapshot())
                       then format('%s:%s:', pg_current_xact_id(), pg_current_xact_id())::pg_snapshot
                       else pg_current_snapshot() end as s) x $$;
