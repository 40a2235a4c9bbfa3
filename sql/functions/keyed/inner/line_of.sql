-- posthaste.line_of: the first keys of a lane's line: those with few messages so far and the
-- others by turns, so that neither a stream of the former nor many of the latter starve the
-- rest.
-- Arguments: subscriber, lane; turns of the cursor of events: where the two lines begin, and
-- the last number given (null: unknown); the maximum of each.
-- Returns: the turns with the new beginnings; the keys.
-- Called under the lane's lock. Reads: keys.
create or replace function posthaste.line_of(p_subscriber bigint, p_lane int, inout turns bigint[], p_max int, out keys text[])
language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set enable_hashjoin = off set enable_mergejoin = off as $$
#variable_conflict use_variable
declare
  v_last bigint := coalesce(turns[3],
    greatest((select max(z.turn) from posthaste.keys z where z.subscriber = p_subscriber and z.lane = p_lane and z.turn is not null and z.early > 0),
             (select max(z.turn) from posthaste.keys z where z.subscriber = p_subscriber and z.lane = p_lane and z.turn is not null and z.early = 0)), 0);
  v_early bigint := coalesce(turns[1], 0);
  v_late bigint := coalesce(turns[2], 0);
begin
  select array_agg(x.key order by x.place), min(x.turn) filter (where x.early), min(x.turn) filter (where not x.early)
    into keys, v_early, v_late
    from ((select z.key, z.turn, true as early, 2 * row_number() over (order by z.turn) as place
             from posthaste.keys z
            where z.subscriber = p_subscriber and z.lane = p_lane and z.turn is not null and z.early > 0 and z.turn >= v_early
            order by z.turn limit p_max)
          union all
          (select z.key, z.turn, false, 2 * row_number() over (order by z.turn) + 1
             from posthaste.keys z
            where z.subscriber = p_subscriber and z.lane = p_lane and z.turn is not null and z.early = 0 and z.turn >= v_late
            order by z.turn limit p_max)) x;
  keys := coalesce(keys, '{}');
  -- Rows that a claim takes from the front die there, and only the next claim walks over them.
  turns := array[coalesce(v_early, v_last + 1), coalesce(v_late, v_last + 1), v_last];
end $$;
