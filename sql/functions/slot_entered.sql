-- posthaste.slot_entered: why a slot may still get rows, or null if it gets none.
-- Arguments: slot; the sequence's last value at an earlier time, to learn whether
-- it ran into the slot since. Reads: slots, positions.
create or replace function posthaste.slot_entered(p_slot int, p_last bigint default null)
returns text language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  m posthaste.slots;
  v_now pg_snapshot := posthaste.snapshot_now();
  v_epoch bigint := (select last_value >> 22 from posthaste.positions);
begin
  select * into m from posthaste.slots where slot = p_slot;
  if not m.live then
    return 'it is free already';
  elsif m.left_before is null or exists (select from generate_series(coalesce(p_last >> 22, v_epoch), v_epoch) e where (e & 15) = p_slot) then
    return 'it is in use';
  end if;
  if pg_snapshot_xmin(v_now) < m.left_before then
    return format('transaction %s, which may have written into it, is still open', pg_snapshot_xmin(v_now));
  end if;
  return null;
end $$;
