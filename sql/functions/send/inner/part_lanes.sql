-- posthaste.part_lanes: gives each priority of a queue lanes of its own, at the
-- first message with a priority above 0, in the sender's transaction.
-- Arguments: queue id. Returns: whether they are there. They are not where
-- another sender is just making them, or somebody else is changing the queue:
-- that message is sent with priority 0 then, for nobody waits for another's
-- transaction.
-- Locks: the queue's settings, where they are free. Updates: queue_settings. Errors: PH400 where the queue is ordered.
create or replace function posthaste.part_lanes(p_queue int)
returns boolean language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
  if (select q.ordered from posthaste.queue_settings q where q.id = p_queue) then
    raise exception using errcode = 'PH400', column = 'priority', message = 'an ordered queue has no priorities', hint = 'its order is that of sending';
  end if;
  begin
    if pg_try_advisory_xact_lock(posthaste.lock_key(13, p_queue)) then
      perform from posthaste.queue_settings q where q.id = p_queue and q.lanes = q.width for no key update skip locked;
      if found then
        update posthaste.queue_settings q set lanes = 4 * q.width where q.id = p_queue;
        return true;
      end if;
    end if;
  exception when serialization_failure then
    -- Made since this transaction's snapshot, which cannot see them.
    return false;
  end;
  return (select q.lanes > q.width from posthaste.queue_settings q where q.id = p_queue);
end $$;
