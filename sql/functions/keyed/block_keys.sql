-- posthaste.block_keys: records that messages of some keys are parked, and for each key the
-- lowest one: none below it is parked.
-- Arguments: subscriber, lane; keys, orders and message ids of the parked messages, in any
-- order and several of a key; which of them wait for a run to end (null: none).
-- A key of which nothing was parked before counts as one with few messages, until
-- posthaste.line_up knows of 16.
-- Called under the lane's lock. Inserts, updates: keys.
create or replace function posthaste.block_keys(p_subscriber bigint, p_lane int, p_keys text[], p_ords xid8[], p_ids bigint[], p_waits boolean[] default null)
returns void language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
begin
  -- Messages of a key that are parked already are usually lower, but not if a transaction
  -- that committed late put an earlier one into the log.
  insert into posthaste.keys as k (subscriber, key, lane, hash, blocked, low_ord, low_id, waits, early)
  select distinct on (u.key) p_subscriber, u.key, p_lane, posthaste.key_hash(u.key), true, u.ord, u.id, coalesce(u.waits, false), 16
    from unnest(p_keys, p_ords, p_ids, p_waits) u (key, ord, id, waits)
   order by u.key, u.ord, u.id
  on conflict (subscriber, key) do update
    set blocked = true, waits = k.waits or excluded.waits, early = case when k.blocked then k.early else excluded.early end,
        low_ord = case when k.blocked and (k.low_ord, k.low_id) <= (excluded.low_ord, excluded.low_id) then k.low_ord else excluded.low_ord end,
        low_id = case when k.blocked and (k.low_ord, k.low_id) <= (excluded.low_ord, excluded.low_id) then k.low_id else excluded.low_id end
    -- Most messages of a blocked key change nothing.
    where not k.blocked or excluded.waits and not k.waits or (excluded.low_ord, excluded.low_id) < (k.low_ord, k.low_id);
end $$;
