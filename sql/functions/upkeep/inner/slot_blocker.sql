-- posthaste.slot_blocker: why a slot cannot be reclaimed, or null if it can.
-- A slot is free when the sequence has left it and every transaction that was in progress then
-- has ended, every reader is past all its entries, no open claim lies in it or holds one of its
-- entries, and no reader's newest claim lies in it. It decides by cursors, open claims and a few
-- index probes, in this order: only once readers are past the slot are all their claims known.
-- Arguments: slot.
create or replace function posthaste.slot_blocker(p_slot int)
returns text language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
  return coalesce(posthaste.slot_entered(p_slot), posthaste.slot_unread(p_slot), posthaste.slot_held(p_slot));
end $$;
