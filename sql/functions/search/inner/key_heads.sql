-- posthaste.key_heads: the newest messages with a key in the ring, below an id: their entries,
-- first and later ones.
-- The ring has no index on keys, because each message with a key would pay for it. So it reads
-- the ring from the newest message down, at most 500,000 positions.
-- Arguments: queues, key, before which id, the maximum number.
-- Returns: the heads. cut_at: it stopped at that id.
-- Reads: slots, positions, entries.
create or replace function posthaste.key_heads(p_queues int[], p_key text, p_before bigint, p_max int, out heads posthaste.head[], out cut_at bigint)
language plpgsql stable
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off set max_parallel_workers_per_gather = 0 as $$
declare
  l posthaste.live := posthaste.live_slots();
  v_last bigint := (select last_value from posthaste.positions);
  v_top bigint := least(coalesce(p_before, v_last + 1), v_last + 1);
  v_epoch bigint;
  v_high bigint;
  v_low bigint;
  v_step bigint;
  v_left bigint := 500000;
begin
  heads := '{}';
  -- The last round, without a slot, is for messages below the lowest one.
  for v_epoch in
    select e from posthaste.ring_epochs() e union all select -1
  loop
    v_high := least(v_top, (v_epoch + 1) << 22);
    heads := heads || array(
      select e.head from posthaste.entries e
       where e.message_id >= v_high and e.message_id < v_top and e.key = p_key and e.queue_id = any (p_queues)
         and posthaste.in_slots(posthaste.slot_of(e.pos), l.a, l.b, l.c, l.d, l.e, l.f));
    v_top := least(v_top, v_high);
    continue when v_epoch < 0;
    v_step := 32768;
    while v_top > v_epoch << 22 loop
      v_low := greatest(v_epoch << 22, v_top - v_step);
      -- Wide steps over empty positions.
      if not exists (select from posthaste.entries e where posthaste.slot_of(e.pos) = v_epoch & 15 and e.pos >= v_low and e.pos < v_top)
         and not exists (select from posthaste.entries e where e.message_id >= v_low and e.message_id < v_top
                            and posthaste.in_slots(posthaste.slot_of(e.pos), l.a, l.b, l.c, l.d, l.e, l.f)) then
        v_top := v_low;
        v_step := v_step * 2;
        continue;
      elsif v_step > 32768 then
        v_step := v_step / 2;
        continue;
      elsif (select count(distinct (x.h).message_id) from (select unnest(heads) as h) x) >= p_max or v_left <= 0 then
        cut_at := v_top;
        return;
      end if;
      heads := heads || array(
        select e.head from posthaste.entries e
         where posthaste.slot_of(e.pos) = v_epoch & 15 and e.pos >= v_low and e.pos < v_top and e.message_id is null and e.key = p_key and e.queue_id = any (p_queues));
      heads := heads || array(
        select e.head from posthaste.entries e
         where e.message_id >= v_low and e.message_id < v_top and e.key = p_key and e.queue_id = any (p_queues)
           and posthaste.in_slots(posthaste.slot_of(e.pos), l.a, l.b, l.c, l.d, l.e, l.f));
      v_left := v_left - (v_top - v_low);
      v_top := v_low;
    end loop;
  end loop;
end $$;
