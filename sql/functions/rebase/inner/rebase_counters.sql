-- posthaste.rebase_counters: counts the entries of the restored log that were not counted yet,
-- and sets the counters so that everything that was handed out counts as settled, and the
-- entries of rebase_work and parked messages as waiting.
-- Called by posthaste.rebase under its locks. Updates: counters.
create or replace function posthaste.rebase_counters()
returns void language plpgsql volatile set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_s pg_snapshot := (select c.s from posthaste.counted c);
begin
  update posthaste.counters x set sent = x.sent + n.rows
    from (select e.queue_id, count(*) as rows from posthaste.entries e
           where not pg_visible_in_snapshot(e.xid, v_s) and e.message_id is null group by 1) n
   where x.queue_id = n.queue_id;
  update posthaste.counters x set done = x.done + n.done
    from (select t.reader >> 10 as subscriber, sum(t.done) as done from posthaste.settlements t where not pg_visible_in_snapshot(t.xid, v_s) group by 1) n
   where x.queue_id = n.subscriber >> 10 and x.subscription = n.subscriber & 1023;
  update posthaste.counters x set retried = x.retried + n.retried, lost = x.lost + n.lost, expired = x.expired + n.expired
    from (select o.reader >> 10 as subscriber, count(*) filter (where o.outcome = 'retried') as retried, count(*) filter (where o.outcome = 'lost') as lost,
                 count(*) filter (where o.outcome = 'expired') as expired
            from posthaste.outcomes o where not pg_visible_in_snapshot(o.xid, v_s) group by 1) n
   where x.queue_id = n.subscriber >> 10 and x.subscription = n.subscriber & 1023;
  update posthaste.counters x set dropped = x.dropped + n.rows
    from (select k.subscriber, count(*) as rows from posthaste.cancelled k
           where not pg_visible_in_snapshot(k.noted, v_s) and k.outcome in ('cancelled', 'done', 'moved') group by 1) n
   where x.queue_id = n.subscriber >> 10 and x.subscription = n.subscriber & 1023;
  with readers as (
    select r.queue_id, r.number, sum(coalesce((r.c).total, 0) + coalesce((r.w).total, 0)) as handed, sum(coalesce((r.c).sifted, 0) + coalesce((r.w).sifted, 0)) as sifted
      from pg_temp.rebase_readers r group by 1, 2
  ), work as (
    select w.queue_id, u.number, count(*) as rows, count(*) filter (where w.again) as again from pg_temp.rebase_work w cross join lateral unnest(w.needs) u (number) group by 1, 2
  ), parked as (
    select p.subscriber, count(*) as rows from posthaste.parked p group by 1
  )
  update posthaste.counters x
     set handed = r.handed, settled = r.handed, sifted = r.sifted, lost = x.lost + coalesce(w.again, 0),
         again = coalesce(w.rows, 0) + coalesce(p.rows, 0) + x.dropped + r.sifted + r.handed - x.sent
    from readers r
    left join work w on w.queue_id = r.queue_id and w.number = r.number
    left join parked p on p.subscriber = (r.queue_id::bigint << 10 | r.number)
   where x.queue_id = r.queue_id and x.subscription = r.number;
end $$;
