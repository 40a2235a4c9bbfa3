-- posthaste.truncate_slot: truncates a slot that was found free, if it is still free under its
-- lock.
-- Arguments: slot; the readers that posthaste.ring_seen returned before posthaste.slot_blocker
-- returned null; p_wait: whether to wait for the lock, 50 ms: all sessions that use the slot's
-- tables wait behind that. Returns: whether it truncated the slot. If the lock is not available,
-- try later.
-- Locks: ACCESS EXCLUSIVE on the slot's tables.
create or replace function posthaste.truncate_slot(p_slot int, p_readers bigint[], p_wait boolean default true)
returns boolean language plpgsql volatile set search_path = pg_catalog, pg_temp set lock_timeout = '50ms' as $$
declare
  n record;
begin
  perform from posthaste.slots s where s.slot = p_slot for update;
  -- In the order in which receiving and settling lock them: in another order each would wait
  -- for the other's locks, and this would hardly ever succeed.
  begin
    execute format('lock table posthaste.leases_%1$s, posthaste.claims_%1$s, posthaste.settlements_%1$s, posthaste.entries_plain_%1$s, posthaste.entries_other_%1$s, posthaste.words_%1$s, posthaste.outcomes_%1$s, posthaste.notes_%1$s in access exclusive mode%2$s', p_slot, case when not p_wait then ' nowait' end);
  exception when lock_not_available then
    return false;
  end;
  -- Under the lock, in new statements: an earlier result may not hold any more. All sessions
  -- wait meanwhile, so only those conditions are checked again that can have changed:
  -- - the sequence may have entered the slot: without maintenance it continues into the next
  --   slot, and senders have put entries there;
  -- - a subscription that reads the slot, or a lane, may have been added.
  -- Nothing else can change. No new positions of the slot are taken, and all transactions with
  -- one have ended (slot_entered checked that before the readers), so it has only the rows that
  -- were examined. A reader that was past its entries stays past them because cursors do not
  -- move back. This includes claims that were in flight: their entries were still ahead of the
  -- cursor. So no later claim holds its entries, an open claim that did was found, and bits that
  -- are set stay set. A reader's newest claim that was elsewhere is now there or newer.
  select * into n from posthaste.ring_seen();
  if posthaste.slot_entered(p_slot) is not null or n.readers is distinct from p_readers then
    return false;
  end if;
  execute format('truncate posthaste.entries_plain_%1$s, posthaste.entries_other_%1$s, posthaste.words_%1$s, posthaste.claims_%1$s, posthaste.settlements_%1$s, posthaste.notes_%1$s, posthaste.outcomes_%1$s, posthaste.leases_%1$s', p_slot);
  -- No row can appear at a position that was given out before: every transaction with a
  -- position of this slot has ended, as slot_entered found.
  update posthaste.slots s set live = false, left_before = null, marked_by = null, cleared_to = n.last where s.slot = p_slot;
  delete from posthaste.carried k where k.slot = p_slot;
  return true;
end $$;
