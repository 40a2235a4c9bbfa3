-- posthaste.upcoming_ticks: the next ticks of a schedule, from its next one on.
create or replace function posthaste.upcoming_ticks(s posthaste.schedule_settings, p_count int)
returns timestamptz[] language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  v_ticks timestamptz[] := array[s.next_at];
begin
  while cardinality(v_ticks) < p_count loop
    v_ticks := v_ticks || posthaste.next_tick(s.cron, s.every, s.time_zone, v_ticks[cardinality(v_ticks)]);
  end loop;
  return v_ticks;
end $$;
