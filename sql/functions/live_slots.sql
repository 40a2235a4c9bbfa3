-- posthaste.live_slots: the slots that may hold rows, newest first, as 16
-- scalars l0…l15 padded with -1.
-- Must be called after the snapshot of the window was taken: a slot is marked
-- in a transaction that commits before the sequence moves there, and every slot
-- from the newest mark to that of last_value counts as live, since the sequence
-- may run on into the next slot without maintenance.
-- Reads: slots, positions.
create or replace function posthaste.live_slots() returns posthaste.live
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_slots bigint[];
  v_newest bigint;
  v_epoch bigint;
begin
  select last_value >> 22 into v_epoch from posthaste.positions;
  -- A slot that is announced lies ahead of the sequence and is no mark of where
  -- it has come to.
  select array_agg(s.slot::bigint order by s.epoch desc), coalesce(max(s.epoch) filter (where s.epoch <= v_epoch), v_epoch - 16)
    into v_slots, v_newest
    from posthaste.slots s where s.live;
  while v_newest < v_epoch and cardinality(v_slots) < 16 loop
    v_newest := v_newest + 1;
    if not (v_newest & 15) = any (v_slots) then
      v_slots := (v_newest & 15) || v_slots;
    end if;
  end loop;
  return row(coalesce(v_slots[1], -1), coalesce(v_slots[2], -1), coalesce(v_slots[3], -1), coalesce(v_slots[4], -1), coalesce(v_slots[5], -1), coalesce(v_slots[6], -1), coalesce(v_slots[7], -1), coalesce(v_slots[8], -1), coalesce(v_slots[9], -1), coalesce(v_slots[10], -1), coalesce(v_slots[11], -1), coalesce(v_slots[12], -1), coalesce(v_slots[13], -1), coalesce(v_slots[14], -1), coalesce(v_slots[15], -1), coalesce(v_slots[16], -1))::posthaste.live;
end $$;
