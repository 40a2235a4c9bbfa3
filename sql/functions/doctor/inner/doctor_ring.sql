-- posthaste.doctor_ring: claims that cannot be rescued although their holder is gone or their
-- lease is over; a ring with too few free slots, and what keeps its oldest slot: the slowest
-- subscription, an open claim, or a transaction.
-- Reads: held_claims, slots, settings, and the tables of oldest_slot.
create or replace function posthaste.doctor_ring()
returns table ("check" text, level text, message text, hint text, queue text, subscription text) language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_free int := (select count(*) from posthaste.slots s where not s.live);
  v_wanted int := (select x.spare_slots from posthaste.settings x);
  v_oldest record;
begin
  return query
    select 'quarantined', 'fault', format('claim %s could not be rescued in %s tries, and keeps its slot of the ring: %s', h.claim, h.tries, coalesce(h.error, 'unknown')),
           format('check the server''s log and disk; to turn unreadable messages into dead letters without content: select * from posthaste.give_up(%s)', h.claim), q.name, s.name
      from posthaste.held_claims h
      join posthaste.queue_settings q on q.id = h.subscriber >> 10
      join posthaste.subscriptions s on s.queue_id = q.id and s.number = h.subscriber & 1023
     where h.tries >= 10 order by h.claim limit 100;
  if v_free >= v_wanted then
    return;
  end if;
  select * into v_oldest from posthaste.oldest_slot();
  return query select 'ring', case when v_free <= 1 then 'fault' else 'warning' end,
    format('%s of 16 slots are free, and %s should be; the oldest one has been kept for %s: %s', v_free, v_wanted,
           coalesce(date_trunc('second', clock_timestamp() - v_oldest.since)::text, 'no time'), coalesce(v_oldest.blocker, 'nothing, it is reclaimed next')),
    case when v_oldest.subscription is not null then format('run a worker for it, unsubscribe it (posthaste.unsubscribe(%L, %L)), or bound it with max_lag', v_oldest.queue, v_oldest.subscription)
         when v_oldest.blocker like 'claim %, received %' then 'wait: unsettled messages are redelivered when the lease ends. If that takes long, receive with shorter leases, and check which receiver extends them'
         when v_oldest.blocker like 'claim %' then 'wait for its handler, or end the worker that holds it (see posthaste.workers): its messages are redelivered'
         when v_oldest.blocker like 'transaction %' then 'end it, in whichever database it is: pg_stat_activity has its session (backend_xid), or pg_prepared_xacts if it was prepared'
         else 'wait; if this does not change, select * from posthaste.maintain() shows why' end, v_oldest.queue, v_oldest.subscription;
end $$;
