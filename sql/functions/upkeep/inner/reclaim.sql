-- posthaste.reclaim: frees the space of one slot if space is needed (fewer free slots than
-- settings.spare_slots) and a slot is free or can be made free.
-- Returns: the truncated slot, or null with the reason.
-- The order matters: data that must outlive the slot is carried in one transaction, and the slot
-- is truncated in a later one; the history, which waits for no other session, is copied right
-- before. The lock is ACCESS EXCLUSIVE with a lock_timeout of 50 ms; then everything that can
-- have changed is checked again under the lock, in new statements that take no lock beyond those
-- of the first check; then TRUNCATE. If the lock is not available (a backup may hold it for
-- hours), the slot is tried later. It waits for one lock per round, because claims wait behind it.
-- Called under the maintenance lock, last in its transaction.
create or replace function posthaste.reclaim(out slot int, out reason text)
language plpgsql volatile set search_path = pg_catalog, pg_temp set lock_timeout = '50ms' as $$
declare
  v_slot int;
  v_blocker text;
  v_blocked int[] := '{}';
  v_seen record;
  v_wait boolean;
  v_waited boolean := false;
begin
  if (select count(*) from posthaste.slots s where not s.live) >= (select spare_slots from posthaste.settings) then
    reason := 'enough slots are free';
    return;
  end if;
  reason := 'no slot is full yet';
  for v_slot in select s.slot from posthaste.slots s where s.live and s.left_before is not null order by s.epoch loop
    -- Before the check, so that changes while it runs count as new.
    v_seen := posthaste.ring_seen();
    v_blocker := posthaste.slot_blocker(v_slot);
    if v_blocker is null then
      if not posthaste.keep_history(v_slot) then
        reason := format('history of slot %s was copied', v_slot);
        return;
      end if;
      -- Settlements since the last count would be lost to the counters.
      perform posthaste.count_up();
      -- At random: otherwise a session that holds one slot for long would block the others.
      v_wait := not v_waited and random() < 0.5;
      v_waited := v_waited or v_wait;
      if posthaste.truncate_slot(v_slot, v_seen.readers, v_wait) then
        slot := v_slot;
        reason := null;
        return;
      end if;
      v_blocker := 'another transaction holds a lock on it';
    else
      v_blocked := v_blocked || v_slot;
    end if;
    reason := format('slot %s: %s', v_slot, v_blocker);
  end loop;
  -- Only when nothing is truncated any more in this transaction: carrying locks readers, and
  -- a session that waits for those holds the slots' tables.
  foreach v_slot in array v_blocked loop
    if posthaste.skip_slot(v_slot) + posthaste.carry_slot(v_slot) > 0 or posthaste.slot_blocker(v_slot) is null then
      reason := format('slot %s was cleared', v_slot);
      return;
    end if;
  end loop;
end $$;
