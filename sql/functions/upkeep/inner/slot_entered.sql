-- posthaste.slot_entered: why a slot may still get rows, or null if it gets none.
-- Every transaction with a position of the slot in a marked epoch has an id below left_before.
-- Slots that the sequence entered after the last marks have no such bound, and any transaction
-- may have a position there, even if the sequence has left the slot again.
-- Arguments: slot. Reads: slots, positions.
create or replace function posthaste.slot_entered(p_slot int)
returns text language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  m posthaste.slots;
  v_now pg_snapshot := posthaste.snapshot_now();
  v_epoch bigint := (select last_value >> 22 from posthaste.positions);
  v_newest bigint;
begin
  select * into m from posthaste.slots where slot = p_slot;
  if not m.live then
    return 'it is free already';
  end if;
  select coalesce(max(s.epoch), v_epoch - 16) into v_newest from posthaste.slots s where s.live and s.epoch <= v_epoch and s.marked_by is null;
  if m.left_before is null or exists (select from generate_series(least(v_newest + 1, v_epoch), v_epoch) e where (e & 15) = p_slot) then
    return 'it is in use';
  end if;
  if pg_snapshot_xmin(v_now) < m.left_before then
    return format('transaction %s, which may have written into it, is still open', pg_snapshot_xmin(v_now));
  end if;
  return null;
end $$;
