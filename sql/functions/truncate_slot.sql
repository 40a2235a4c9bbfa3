-- posthaste.truncate_slot: truncates a slot if it is still free under its lock.
-- Returns: whether it did. A lock that is refused within 50 ms means later.
-- Locks: ACCESS EXCLUSIVE on the slot's tables.
create or replace function posthaste.truncate_slot(p_slot int)
returns boolean language plpgsql volatile set search_path = pg_catalog, pg_temp set lock_timeout = '50ms' as $$
begin
  perform from posthaste.slots s where s.slot = p_slot for update;
  begin
    execute format('lock table posthaste.entries_%1$s, posthaste.claims_%1$s, posthaste.settlements_%1$s, posthaste.outcomes_%1$s, posthaste.leases_%1$s in access exclusive mode', p_slot);
  exception when lock_not_available then
    return false;
  end;
  -- Under the lock, in a new statement: what was true before it was held may not
  -- be any more.
  if posthaste.slot_blocker(p_slot) is not null then
    return false;
  end if;
  execute format('truncate posthaste.entries_%1$s, posthaste.claims_%1$s, posthaste.settlements_%1$s, posthaste.outcomes_%1$s, posthaste.leases_%1$s', p_slot);
  update posthaste.slots s set live = false, left_at = null, marked_by = null where s.slot = p_slot;
  return true;
end $$;
