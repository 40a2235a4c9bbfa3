-- posthaste.slot_entered: why a slot may still get rows, or null if it gets none.
-- Arguments: slot; the sequence's last value at an earlier time, to learn whether
-- it ran into the slot since. Reads: slots, positions,
-- pg_locks.
create or replace function posthaste.slot_entered(p_slot int, p_last bigint default null)
returns text language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  m posthaste.slots;
  v_now pg_snapshot := posthaste.snapshot_now();
  v_epoch bigint := (select last_value >> 22 from posthaste.positions);
  v_text text;
begin
  select * into m from posthaste.slots where slot = p_slot;
  if not m.live then
    return 'it is free already';
  elsif m.left_at is null or exists (select from generate_series(coalesce(p_last >> 22, v_epoch), v_epoch) e where (e & 15) = p_slot) then
    return 'it is in use';
  end if;
  select x::text into v_text from pg_snapshot_xip(m.left_at) x where not pg_visible_in_snapshot(x, v_now) limit 1;
  if v_text is not null then
    return format('transaction %s, which may have written into it, is still open', v_text);
  end if;
  -- A snapshot does not list transactions whose ids lie above all finished ones.
  -- Who has written into the slot holds a lock that only inserting takes.
  select k.pid::text into v_text from pg_locks k
   where k.locktype = 'relation' and k.mode = 'RowExclusiveLock' and k.granted
     and k.database = (select d.oid from pg_database d where d.datname = current_database())
     and k.relation in (format('posthaste.entries_%s', p_slot)::regclass, format('posthaste.claims_%s', p_slot)::regclass) limit 1;
  if found then
    return format('transaction of process %s, which has written into it, is still open', coalesce(v_text, 'none (prepared)'));
  end if;
  return null;
end $$;
