-- posthaste.doctor_ring: which claims cannot be rescued, though their holder is gone or
-- their lease is over? How full is the ring, and what keeps its oldest slot: the
-- slowest subscription, an open claim, or a transaction?
-- Reads: held_claims, slots, settings, and what oldest_slot reads.
create or replace function posthaste.doctor_ring()
returns table ("check" text, level text, message text, hint text, queue text, subscription text) language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_free int := (select count(*) from posthaste.slots s where not s.live);
  v_wanted int := (select x.spare_slots from posthaste.settings x);
  o record;
begin
  return query
    select 'quarantined', 'fault', format('claim %s could not be rescued in %s tries, and keeps its slot of the ring: %s', h.claim, h.tries, coalesce(h.error, 'unknown')),
           format('look into the server''s log and check its disk; what cannot be read is made dead letters, without content, by select * from posthaste.give_up(%s)', h.claim), q.name, s.name
      from posthaste.held_claims h
      join posthaste.queue_settings q on q.id = h.subscriber >> 10
      join posthaste.subscriptions s on s.queue_id = q.id and s.number = h.subscriber & 1023
     where h.tries >= 10 order by h.claim limit 100;
  if v_free >= v_wanted then
    return;
  end if;
  select * into o from posthaste.oldest_slot();
  return query select 'ring', case when v_free <= 1 then 'fault' else 'warning' end,
    format('%s of 16 slots are free, and %s should be; the oldest one has been kept for %s: %s', v_free, v_wanted,
           coalesce(date_trunc('second', clock_timestamp() - o.since)::text, 'no time'), coalesce(o.blocker, 'nothing, it is reclaimed next')),
    case when o.subscription is not null then format('run a worker for it, unsubscribe it (posthaste.unsubscribe(%L, %L)), or bound it with max_lag', o.queue, o.subscription)
         when o.blocker like 'claim %, received %' then 'wait: what its receiver does not settle is handed out anew when its lease ends. Where that takes long, receive with shorter leases, and see who extends them'
         when o.blocker like 'claim %' then 'wait for its handler, or end who holds it (posthaste.workers names the worker): its messages are handed out anew'
         when o.blocker like 'transaction %' then 'end it: of whatever database it is, pg_stat_activity names its session (backend_xid), and pg_prepared_xacts tells it if it was prepared'
         else 'wait; if it stays so, select * from posthaste.maintain() says why' end, o.queue, o.subscription;
end $$;
