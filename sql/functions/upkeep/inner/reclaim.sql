-- posthaste.reclaim: gives the space of one slot back, if space is wanted (fewer
-- free slots than settings.spare_slots) and a slot is free or can be made so.
-- Returns: the slot that was truncated; null if none was, with the reason.
-- Order matters: what must outlive the slot is carried in one transaction, and
-- the slot is truncated in a later one; the history, which waits for nobody, is
-- copied right before. ACCESS EXCLUSIVE with a lock_timeout of
-- 50 ms; then everything that can have changed is checked again under the lock,
-- in new statements that take no lock which the first check did not take already;
-- then TRUNCATE. A lock that is refused (a backup may hold it for hours) means later,
-- and is waited for once a round, for claims wait behind it.
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
  reason := 'no slot was left yet';
  for v_slot in select s.slot from posthaste.slots s where s.live and s.left_before is not null order by s.epoch loop
    -- Before the check, so that what comes while it runs counts as new.
    v_seen := posthaste.ring_seen();
    v_blocker := posthaste.slot_blocker(v_slot);
    if v_blocker is null then
      if not posthaste.keep_history(v_slot) then
        reason := format('history of slot %s was copied', v_slot);
        return;
      end if;
      -- What was settled since the last count would be gone uncounted.
      perform posthaste.count_up();
      -- By chance, or who holds one slot for long would keep the others from their turn.
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
  -- Only when nothing is truncated any more in this transaction: carrying takes
  -- readers, and whoever waits for those holds the slots' tables.
  foreach v_slot in array v_blocked loop
    if posthaste.skip_slot(v_slot) + posthaste.carry_slot(v_slot) > 0 or posthaste.slot_blocker(v_slot) is null then
      reason := format('slot %s was cleared', v_slot);
      return;
    end if;
  end loop;
end $$;
