-- posthaste.line_up: appends keys with parked messages to their lane's line, unless they are in
-- line.
-- Arguments: subscriber; the keys in the order in which they line up; the number of messages
-- found of each since the last time: a key with 16 joins those with many; the last number
-- given.
-- Returns: the last number given. Called under the lane's lock. Updates: keys.
create or replace function posthaste.line_up(p_subscriber bigint, p_keys text[], p_counts bigint[], inout turn bigint)
language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_material = off as $$
#variable_conflict use_column
begin
  -- A key that changes to the other line goes to its end: claims do not look before the place
  -- of its first key.
  update posthaste.keys z
     set turn = case when z.turn is null or z.early > 0 and z.early <= u.n then line_up.turn + u.i else z.turn end, early = greatest(z.early - u.n, 0)
    from (select u.i, u.n, y.ctid from unnest(p_keys, p_counts) with ordinality u (key, n, i)
           -- Each by its key: a join may scan all keys.
           cross join lateral (select x.ctid from posthaste.keys x where x.subscriber = p_subscriber and x.key = u.key limit 1) y) u
   where z.ctid = u.ctid and z.blocked and (z.turn is null or z.early > 0 and u.n > 0);
  line_up.turn := line_up.turn + coalesce(cardinality(p_keys), 0);
end $$;
