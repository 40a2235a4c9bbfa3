-- posthaste.slot_blocker: why a slot cannot be reclaimed, or null if it can.
-- A slot is free when the sequence has left it and every transaction that was in
-- progress then is finished, every reader is past all its entries, no open claim
-- lies in it or holds one of its entries, and no reader's newest claim lies in
-- it. Decided from cursors, open claims and a few index probes, in this order:
-- only claims of readers that are past the slot are known to be all there are.
-- Arguments: slot.
create or replace function posthaste.slot_blocker(p_slot int)
returns text language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
  return coalesce(posthaste.slot_entered(p_slot), posthaste.slot_unread(p_slot), posthaste.slot_held(p_slot));
end $$;
