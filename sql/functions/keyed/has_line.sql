-- posthaste.has_line: whether keys of a lane are in line. Arguments: subscriber, lane; turns of
-- its cursor of events. Reads: keys.
create or replace function posthaste.has_line(p_subscriber bigint, p_lane int, p_turns bigint[])
returns boolean language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off as $$
begin
  return exists (select from posthaste.keys z
                  where z.subscriber = p_subscriber and z.lane = p_lane and z.turn is not null and z.early > 0 and z.turn >= coalesce(p_turns[1], 0)
                  order by z.turn limit 1)
      or exists (select from posthaste.keys z
                  where z.subscriber = p_subscriber and z.lane = p_lane and z.turn is not null and z.early = 0 and z.turn >= coalesce(p_turns[2], 0)
                  order by z.turn limit 1);
end $$;
