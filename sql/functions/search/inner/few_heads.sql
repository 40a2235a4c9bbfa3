-- posthaste.few_heads: the messages of one queue in one slot by the queue's indexes, newest
-- first, if the slot has at most 10,000 entries of it.
-- Arguments: queue, its lanes, slot, before which position, the maximum number.
-- Returns: many: there are more entries than that, so the heads are not read.
-- Reads: entries.
create or replace function posthaste.few_heads(p_queue int, p_lanes int, p_slot bigint, p_before bigint, p_max int,
  out many boolean, out heads posthaste.head[])
language plpgsql stable
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
declare
  v_lowest bigint;
begin
  select count(*) > 10000 into many from (
    select from generate_series(0, p_lanes - 1) g cross join lateral (
      select from posthaste.entries e where e.queue_id = p_queue and e.lane = g and e.plain and posthaste.slot_of(e.pos) = p_slot limit 10001) e
    union all
    select from generate_series(0, p_lanes - 1) g cross join lateral (
      select from posthaste.entries e where e.queue_id = p_queue and e.lane = g and e.ord is not null and e.due_at is null and posthaste.slot_of(e.pos) = p_slot limit 10001) e
    union all
    select from generate_series(0, p_lanes - 1) g cross join lateral (
      select from posthaste.entries e where e.queue_id = p_queue and e.lane = g and e.due_at is not null and posthaste.slot_of(e.pos) = p_slot limit 10001) e
    limit 10001) x;
  heads := '{}';
  if not many then
    -- First which ones, because making a head costs more than reading its row.
    v_lowest := (select min(y.pos) from (
      select x.pos from (
        select e.pos from generate_series(0, p_lanes - 1) g
          join posthaste.entries e on e.queue_id = p_queue and e.lane = g and e.plain and posthaste.slot_of(e.pos) = p_slot
         where e.pos < p_before and e.message_id is null
        union all
        select e.pos from generate_series(0, p_lanes - 1) g
          join posthaste.entries e on e.queue_id = p_queue and e.lane = g and e.ord is not null and e.due_at is null and posthaste.slot_of(e.pos) = p_slot
         where e.pos < p_before and e.message_id is null
        union all
        select e.pos from generate_series(0, p_lanes - 1) g
          join posthaste.entries e on e.queue_id = p_queue and e.lane = g and e.due_at is not null and posthaste.slot_of(e.pos) = p_slot
         where e.pos < p_before and e.message_id is null) x
       order by x.pos desc limit p_max) y);
    heads := array(
      select x.h from (
        select e.pos, e.head as h from generate_series(0, p_lanes - 1) g
          join posthaste.entries e on e.queue_id = p_queue and e.lane = g and e.plain and posthaste.slot_of(e.pos) = p_slot
         where e.pos >= v_lowest and e.pos < p_before and e.message_id is null
        union all
        select e.pos, e.head as h from generate_series(0, p_lanes - 1) g
          join posthaste.entries e on e.queue_id = p_queue and e.lane = g and e.ord is not null and e.due_at is null and posthaste.slot_of(e.pos) = p_slot
         where e.pos >= v_lowest and e.pos < p_before and e.message_id is null
        union all
        select e.pos, e.head as h from generate_series(0, p_lanes - 1) g
          join posthaste.entries e on e.queue_id = p_queue and e.lane = g and e.due_at is not null and posthaste.slot_of(e.pos) = p_slot
         where e.pos >= v_lowest and e.pos < p_before and e.message_id is null) x
       order by x.pos desc limit p_max);
  end if;
end $$;
