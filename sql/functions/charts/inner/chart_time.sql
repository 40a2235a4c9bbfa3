-- posthaste.chart_time: the present time as all functions of this room see it. Tests replace it.
create or replace function posthaste.chart_time()
returns timestamptz language sql volatile set search_path = pg_catalog, pg_temp as
$$ select clock_timestamp() $$;
