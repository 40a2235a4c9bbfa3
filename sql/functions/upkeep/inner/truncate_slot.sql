-- posthaste.truncate_slot: truncates a slot that was found free, if it is still
-- free under its lock.
-- Arguments: slot; the readers that posthaste.ring_seen told before
-- posthaste.slot_blocker said null.
-- p_wait: whether to wait for the lock, 50 ms: all who come to the slot's tables wait
-- behind that. Returns: whether it did. A lock that is refused means later.
-- Locks: ACCESS EXCLUSIVE on the slot's tables.
create or replace function posthaste.truncate_slot(p_slot int, p_readers bigint[], p_wait boolean default true)
returns boolean language plpgsql volatile set search_path = pg_catalog, pg_temp set lock_timeout = '50ms' as $$
declare
  n record;
begin
  perform from posthaste.slots s where s.slot = p_slot for update;
  -- In the order in which receiving and settling come to them: in another one
  -- each would wait for what the other has, and this would hardly ever get through.
  begin
    execute format('lock table posthaste.leases_%1$s, posthaste.claims_%1$s, posthaste.settlements_%1$s, posthaste.entries_plain_%1$s, posthaste.entries_other_%1$s, posthaste.words_%1$s, posthaste.outcomes_%1$s in access exclusive mode%2$s', p_slot, case when not p_wait then ' nowait' end);
  exception when lock_not_available then
    return false;
  end;
  -- Under the lock, in new statements: what was true before it was held may not
  -- be any more. Everybody waits meanwhile, so only that is asked again which can
  -- have changed since it was found free:
  -- - the sequence can have run into the slot: without maintenance it runs on
  --   into the next slot, and senders have put entries there;
  -- - a subscription can have been made that is to read the slot, or a lane.
  -- Nothing else can. Without new positions of the slot, and with everyone gone
  -- who had taken one (slot_entered said so before the readers were asked), it has
  -- no rows but those that were looked at. A reader
  -- that was past its entries stays past them, for cursors do not go back, also
  -- in claims that were in flight: their entries were still ahead of the cursor
  -- that was seen. So no claim since holds its entries, an open claim that did
  -- was seen, and bits that are set stay set. A reader's newest claim that was
  -- elsewhere is now there or newer.
  select * into n from posthaste.ring_seen();
  if posthaste.slot_entered(p_slot) is not null or n.readers is distinct from p_readers then
    return false;
  end if;
  execute format('truncate posthaste.entries_plain_%1$s, posthaste.entries_other_%1$s, posthaste.words_%1$s, posthaste.claims_%1$s, posthaste.settlements_%1$s, posthaste.outcomes_%1$s, posthaste.leases_%1$s', p_slot);
  -- Nothing can come to lie at a position that was given out before: whoever had
  -- taken one of this slot is gone, as slot_entered has it.
  update posthaste.slots s set live = false, left_before = null, marked_by = null, cleared_to = n.last where s.slot = p_slot;
  delete from posthaste.carried k where k.slot = p_slot;
  return true;
end $$;
