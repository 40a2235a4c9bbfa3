-- posthaste.next_tick: the tick of a schedule after another one, or after any
-- time if it is a cron line.
-- Returns: the tick; null if there is none. Tables: none.
create or replace function posthaste.next_tick(p_cron posthaste.cron, p_every interval, p_zone text, p_after timestamptz)
returns timestamptz language sql stable set search_path = pg_catalog, pg_temp as $$
  select case when p_every is not null then p_after + p_every else posthaste.cron_next(p_cron, p_zone, p_after) end
$$;
