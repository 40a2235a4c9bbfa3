-- posthaste.part_lanes: gives each priority of a queue its own lanes, in the transaction of
-- the first sender that uses a priority above 0.
-- Arguments: queue id. Returns: whether the lanes exist. They do not if another sender is just
-- creating them or another transaction is changing the queue. The caller then sends the
-- message with priority 0, so that no sender waits for another transaction.
-- Locks: the queue's settings, if they are free. Updates: queue_settings. Errors: PH400 if the
-- queue is ordered.
create or replace function posthaste.part_lanes(p_queue int)
returns boolean language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
  if (select q.ordered from posthaste.queue_settings q where q.id = p_queue) then
    raise exception using errcode = 'PH400', column = 'priority', message = 'an ordered queue has no priorities', hint = 'it delivers messages in the order in which they were sent';
  end if;
  begin
    if pg_try_advisory_xact_lock(posthaste.lock_key(13, p_queue)) then
      perform from posthaste.queue_settings q where q.id = p_queue and not q.prioritized for no key update skip locked;
      if found then
        update posthaste.queue_settings q set prioritized = true, lanes = greatest(q.lanes, 4 * q.width) where q.id = p_queue;
        return true;
      end if;
    end if;
  exception when serialization_failure then
    -- Created since this transaction's snapshot, which cannot see them.
    return false;
  end;
  return (select q.prioritized from posthaste.queue_settings q where q.id = p_queue);
end $$;
