-- posthaste.newest_heads: the newest messages by position, newest first, below a position; of
-- one queue or (null) of all.
-- It walks the slots from the newest down, and each slot's positions from the top, so its work
-- does not grow with the log: a slot without messages of the queue costs a probe, one with few
-- of them is read by the queue's indexes, and only one with many is walked. There it skips the
-- entries of other queues by the queue's indexes. Between two slots come messages of which only
-- later entries (retries) are left.
-- Reads: slots, positions, entries.
create or replace function posthaste.newest_heads(p_queue int, p_before bigint, p_max int)
returns setof posthaste.head language plpgsql stable rows 100
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off set max_parallel_workers_per_gather = 0 as $$
declare
  l posthaste.live := posthaste.live_slots();
  v_last bigint := (select last_value from posthaste.positions);
  v_lanes int := (select q.lanes from posthaste.queue_settings q where q.id = p_queue);
  v_epoch bigint;
  v_top bigint := least(coalesce(p_before, v_last + 1), v_last + 1);
  v_bottom bigint;
  v_high bigint;
  v_low bigint;
  v_step bigint;
  v_left int := p_max;
  v_rows int;
  v_few record;
begin
  -- The last round, without a slot, is for messages below the lowest one.
  for v_epoch in
    select e from posthaste.ring_epochs() e union all select -1
  loop
    exit when v_left <= 0;
    v_high := least(v_top, (v_epoch + 1) << 22);
    return query
      select (x.h).* from (
        select distinct on (e.message_id) e.message_id, e.head as h
          from posthaste.entries e
         where e.message_id >= (v_epoch + 1) << 22 and e.message_id < v_top and (p_queue is null or e.queue_id = p_queue)
           and posthaste.in_slots(posthaste.slot_of(e.pos), l.a, l.b, l.c, l.d, l.e, l.f)
         order by e.message_id desc, e.pos desc limit v_left) x;
    get diagnostics v_rows = row_count;
    v_left := v_left - v_rows;
    v_bottom := v_epoch << 22;
    v_top := least(v_top, v_bottom);
    continue when v_epoch < 0 or v_high <= v_bottom;
    if p_queue is not null then
      select * into v_few from posthaste.few_heads(p_queue, v_lanes, v_epoch & 15, v_high, v_left);
      if not v_few.many then
        return query select (x).* from unnest(v_few.heads) x;
        v_left := v_left - cardinality(v_few.heads);
        continue;
      end if;
    end if;
    v_step := 8192;
    while v_high > v_bottom and v_left > 0 loop
      v_low := greatest(v_bottom, v_high - v_step);
      -- Wide steps only check whether there is anything. Instead of the widest ones, which would
      -- read each entry of other queues, it looks where the queue's entries end.
      if v_step > 32768 and p_queue is not null then
        v_high := coalesce(posthaste.last_position(p_queue, v_epoch & 15, v_high) + 1, v_bottom);
        v_step := 8192;
        continue;
      elsif v_step > 8192 then
        if exists (select from posthaste.entries e
                    where posthaste.slot_of(e.pos) = v_epoch & 15 and e.pos >= v_low and e.pos < v_high and e.message_id is null
                      and (p_queue is null or e.queue_id = p_queue)) then
          v_step := v_step / 2;
        else
          v_high := v_low;
          v_step := v_step * 2;
        end if;
        continue;
      end if;
      return query
        select (e.head).* from posthaste.entries e
         where posthaste.slot_of(e.pos) = v_epoch & 15 and e.pos >= v_low and e.pos < v_high and e.message_id is null
           and (p_queue is null or e.queue_id = p_queue)
         order by e.pos desc limit v_left;
      get diagnostics v_rows = row_count;
      v_left := v_left - v_rows;
      v_high := v_low;
      if v_rows = 0 then
        v_step := v_step * 2;
      end if;
    end loop;
  end loop;
end $$;
