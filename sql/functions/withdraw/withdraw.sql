-- posthaste.withdraw: withdraws a waiting entry, or a parked message, from one subscription: no
-- claim will hand it out.
-- Arguments: the entry; the subscription's number; how it ended for it: 'cancelled', 'done',
-- 'carried' or 'moved' (a later entry replaces it, for all subscriptions or for this one
-- alone).
-- Called under the lock of the entry's reader, which must not have handed it out.
-- Inserts: cancelled, claims. Deletes: parked.
create or replace function posthaste.withdraw(h posthaste.head, p_subscription int, p_outcome text)
returns void language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_keyed boolean := (select q.keyed from posthaste.queue_settings q where q.id = h.queue_id);
begin
  if v_keyed and posthaste.unpark(h.queue_id::bigint << 10 | p_subscription, array[h.message_id], p_outcome) > 0 then
    return;
  end if;
  insert into posthaste.cancelled (pos, subscriber, outcome, xid)
  values (h.pos, h.queue_id::bigint << 10 | p_subscription, p_outcome, case when h.due_at is null then h.xid end);
  -- Readers of keyed queues check for such rows themselves.
  if h.due_at is null and not v_keyed then
    perform posthaste.sift_from_here(posthaste.reader_key(h.queue_id, p_subscription, h.lane, 0));
  end if;
end $$;
