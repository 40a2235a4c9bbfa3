-- posthaste.chart_time: the present time, for the functions of this room. Tests replace it.
create or replace function posthaste.chart_time()
returns timestamptz language sql volatile set search_path = pg_catalog, pg_temp as
$$ select clock_timestamp() $$;
