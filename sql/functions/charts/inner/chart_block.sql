-- posthaste.chart_block: the number of the block of time for which a part of stats and samples
-- is used: of 2 hours for details, and of 16 days for sums by hour. Details of a block are in
-- part block % 3, and sums in part block % 3 + 3.
-- Arguments: the time; whether of sums.
create or replace function posthaste.chart_block(p_at timestamptz, p_hours boolean)
returns int language sql stable parallel safe set search_path = pg_catalog, pg_temp as
$$ select floor(extract(epoch from p_at) / case when p_hours then 16 * 86400 else 7200 end)::int $$;
