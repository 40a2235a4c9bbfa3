-- posthaste.doctor_ring: how full is the ring, and what keeps its oldest slot: the
-- slowest subscription, an open claim, or a transaction?
-- Reads: slots, settings, and what oldest_slot reads.
create or replace function posthaste.doctor_ring()
returns table (level text, message text, hint text, queue text, subscription text) language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_free int := (select count(*) from posthaste.slots s where not s.live);
  v_wanted int := (select x.spare_slots from posthaste.settings x);
  o record;
begin
  if v_free >= v_wanted then
    return;
  end if;
  select * into o from posthaste.oldest_slot();
  return query select case when v_free <= 1 then 'fault' else 'warning' end,
    format('%s of 16 slots are free, and %s should be; the oldest one has been kept for %s: %s', v_free, v_wanted,
           coalesce(date_trunc('second', clock_timestamp() - o.since)::text, 'no time'), coalesce(o.blocker, 'nothing, it is reclaimed next')),
    case when o.subscription is not null then format('run a worker for it, unsubscribe it (posthaste.unsubscribe(%L, %L)), or bound it with max_lag', o.queue, o.subscription)
         when o.blocker like 'claim %, received %' then 'wait: what its receiver does not settle is handed out anew when its lease ends. Where that takes long, receive with shorter leases, and see who extends them'
         when o.blocker like 'claim %' then 'wait for its handler, or end who holds it (posthaste.workers names the worker): its messages are handed out anew'
         when o.blocker like 'transaction %' then 'end it: of whatever database it is, pg_stat_activity names its session (backend_xid), and pg_prepared_xacts tells it if it was prepared'
         else 'wait; if it stays so, select * from posthaste.maintain() says why' end, o.queue, o.subscription;
end $$;
