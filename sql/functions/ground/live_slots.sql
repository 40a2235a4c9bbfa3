-- posthaste.live_slots: the slots that may hold rows, as up to three runs of the ring, split
-- at the widest gaps.
-- Call it after taking the snapshot of the window: a slot is marked in a transaction that
-- commits before the sequence moves there. Every slot from the newest mark to the slot of
-- last_value counts as live because the sequence may enter the next slot without maintenance.
-- Reads: slots, positions.
create or replace function posthaste.live_slots() returns posthaste.live
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_first bigint;
  v_last bigint;
  v_count bigint;
  v_newest bigint;
  v_epoch bigint;
  v_slots bigint[];
  v_cuts int[];
begin
  -- The mark of an announced slot (marked_by) does not show how far the sequence has come:
  -- the slot lies ahead, or the sequence passed it and those before it without maintenance.
  select p.last_value >> 22 into v_epoch from posthaste.positions p;
  select min(s.slot), max(s.slot), count(*), max(s.epoch) filter (where s.epoch <= v_epoch and s.marked_by is null)
    into v_first, v_last, v_count, v_newest from posthaste.slots s where s.live;
  if v_newest = v_epoch and v_last - v_first + 1 = v_count then
    return row(v_first, v_last, 1, 0, 1, 0)::posthaste.live;
  end if;
  with marked as (select p.last_value >> 22 as epoch, coalesce(max(s.epoch) filter (where s.live and s.epoch <= p.last_value >> 22 and s.marked_by is null), (p.last_value >> 22) - 16) as newest
                    from posthaste.positions p cross join posthaste.slots s group by p.last_value)
  select array_agg(x.slot order by x.slot) into v_slots
    from (select s.slot::bigint from posthaste.slots s where s.live
          union
          select g & 15 from marked m cross join generate_series(greatest(m.newest + 1, m.epoch - 15), m.epoch) g) x (slot);
  -- The last index of each run, before the two widest gaps.
  v_cuts := array(select n from (select i - 1 as n from generate_series(2, cardinality(v_slots)) i
                                  where v_slots[i] - v_slots[i - 1] > 1 order by v_slots[i] - v_slots[i - 1] desc, i limit 2) x order by n)
            || array[cardinality(v_slots), cardinality(v_slots), cardinality(v_slots)];
  return row(v_slots[1], v_slots[v_cuts[1]],
             coalesce(v_slots[v_cuts[1] + 1], 1), case when v_cuts[1] < cardinality(v_slots) then v_slots[v_cuts[2]] else 0 end,
             coalesce(v_slots[v_cuts[2] + 1], 1), case when v_cuts[2] < cardinality(v_slots) then v_slots[v_cuts[3]] else 0 end)::posthaste.live;
end $$;
