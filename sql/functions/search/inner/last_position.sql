-- posthaste.last_position: the highest position below another one that an entry of a queue has
-- in a slot, or null. It reads the queue's indexes of the slot, and no entries of other queues.
-- Arguments: queue, slot, before which position. Reads: entries.
create or replace function posthaste.last_position(p_queue int, p_slot bigint, p_before bigint)
returns bigint language plpgsql stable
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set enable_incremental_sort = off set jit = off set max_parallel_workers_per_gather = 0 as $$
declare
  v_last bigint;
  v_more bigint;
begin
  -- The last entries in the order of the queue are mostly those with the highest positions.
  -- Then only those above are returned by the indexes, which compare the rest quickly.
  -- pos + 0: otherwise the plan may be the index of positions, which has the entries of all queues.
  v_last := greatest(0,
    (select max(x.pos) from (select e.pos from posthaste.entries e
                              where e.queue_id = p_queue and e.plain and posthaste.slot_of(e.pos) = p_slot and e.pos + 0 < p_before
                              order by e.queue_id desc, e.lane desc, e.xid desc, e.pos desc limit 1000) x),
    (select max(x.pos) from (select e.pos from posthaste.entries e
                              where e.queue_id = p_queue and e.ord is not null and e.due_at is null and posthaste.slot_of(e.pos) = p_slot and e.pos + 0 < p_before
                              order by e.queue_id desc, e.lane desc, e.ord desc, e.pos desc limit 1000) x),
    (select max(x.pos) from (select e.pos from posthaste.entries e
                              where e.queue_id = p_queue and e.due_at is not null and posthaste.slot_of(e.pos) = p_slot and e.pos + 0 < p_before
                              order by e.queue_id desc, e.lane desc, e.due_at desc, e.pos desc limit 1000) x));
  v_more := greatest(
    (select max(e.pos + 0) from posthaste.entries e
      where e.queue_id = p_queue and e.plain and posthaste.slot_of(e.pos) = p_slot and e.pos > v_last and e.pos + 0 < p_before),
    (select max(e.pos + 0) from posthaste.entries e
      where e.queue_id = p_queue and e.ord is not null and e.due_at is null and posthaste.slot_of(e.pos) = p_slot and e.pos > v_last and e.pos + 0 < p_before),
    (select max(e.pos + 0) from posthaste.entries e
      where e.queue_id = p_queue and e.due_at is not null and posthaste.slot_of(e.pos) = p_slot and e.pos > v_last and e.pos + 0 < p_before));
  return coalesce(v_more, nullif(v_last, 0));
end $$;
