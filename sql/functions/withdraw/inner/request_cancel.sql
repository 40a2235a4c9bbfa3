-- posthaste.request_cancel: cancels a message that is handed out: whatever ends the delivery but
-- success makes it cancelled, and its holder is told.
-- Arguments: the entry that is handed out; the subscription's number.
-- Returns: whether this call has done so, or an earlier one had (false); null if the delivery has
-- ended meanwhile.
-- The note decides: it is accepted only before the end of the delivery, and whatever ends the
-- delivery otherwise than done sees it (posthaste.put_note). The row in cancel_requests commits
-- with it.
-- Errors: PH503 if a transaction that has not ended is noting something about the delivery or
-- ending it. The wait is shorter than deadlock_timeout, because the caller holds locks that such a
-- transaction may want.
-- Called under the lock of the entry's reader. Inserts: notes, cancel_requests.
create or replace function posthaste.request_cancel(h posthaste.head, p_subscription int)
returns boolean language plpgsql volatile
set search_path = pg_catalog, pg_temp set lock_timeout = '900ms' set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off as $$
declare
  c posthaste.claims;
  v_delivery bigint;
begin
  c := (posthaste.find_claim(posthaste.reader_key(h.queue_id, p_subscription, h.lane, (h.due_at is not null)::int), h.xid, h.pos, h.due_at, posthaste.live_slots())).c;
  if c.id is null then
    return null;
  end if;
  v_delivery := (select c.id * 4096 + d.place from posthaste.deliveries_of(c) d where d.pos = h.pos);
  if exists (select from posthaste.cancel_requests x where x.delivery = v_delivery) then
    return false;
  elsif not posthaste.put_note(v_delivery, null, null, null, null, true) then
    return null;
  end if;
  insert into posthaste.cancel_requests (delivery, worker) values (v_delivery, coalesce(c.holder, 0));
  return true;
exception when lock_not_available then
  raise exception using errcode = 'PH503', message = format('a transaction that has not ended settles delivery %s of message %s, or stores its checkpoint', v_delivery, h.message_id),
    hint = 'call cancel again after that transaction has ended';
end $$;
