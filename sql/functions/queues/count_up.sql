-- posthaste.count_up: adds the new part of the log to the counters: each entry, settlement
-- and outcome once, by windows. It never counts a backlog.
-- Returns: whether there was anything new.
-- The ranges are laterals with a fence because as joins they would be filters over the
-- whole slot.
-- Called under the maintenance lock. Updates: counters, counted.
create or replace function posthaste.count_up()
returns boolean language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set enable_hashjoin = off set enable_mergejoin = off set enable_material = off set jit = off as $$
declare
  k posthaste.counted;
  v_s pg_snapshot;
  l posthaste.live;
  v_last bigint;
  v_lo bigint[];
  v_hi bigint[];
  v_parts bigint;
  v_step bigint;
  v_now timestamptz := clock_timestamp();
  n record;
  v_any boolean;
begin
  select * into k from posthaste.counted;
  select last_value into v_last from posthaste.positions;
  -- Before the snapshot, so that every message that was handed out is also counted. One
  -- statement for all queues, here and below: a statement for each lane would cost ten times as
  -- much as its index probes.
  l := posthaste.live_slots();
  with handed as materialized (
    select q.id, u.number, x.total, x.sifted
      from posthaste.queue_settings q join posthaste.subscriptions u on u.queue_id = q.id
     cross join lateral (
        select coalesce(sum(c.total), 0) as total, coalesce(sum(c.sifted), 0) as sifted
          from generate_series(0, q.lanes - 1) lane cross join generate_series(0, 1) track
         cross join lateral (
           select y.total, y.sifted from posthaste.claims y
            where y.reader = posthaste.reader_key(q.id, u.number, lane, track)
              and posthaste.in_slots(y.slot, l.a, l.b, l.c, l.d, l.e, l.f)
            order by y.reader desc, y.seq desc limit 1) c) x
     where q.dropped_at is null and u.dropped_at is null
  )
  -- By ctid, here and below: a join may compare each queue with all counters. The maintenance
  -- lock excludes other updates; a row updated meanwhile would be skipped.
  update posthaste.counters x set handed = h.total, sifted = h.sifted
    from (select h.total, h.sifted, y.ctid from handed h
           cross join lateral (select y.ctid from posthaste.counters y where y.queue_id = h.id and y.subscription = h.number order by y.queue_id, y.subscription limit 1) y) h
   where x.ctid = h.ctid and (x.handed <> h.total or x.sifted <> h.sifted);
  v_s := posthaste.snapshot_now();
  l := posthaste.live_slots();
  select lo, hi into v_lo, v_hi from posthaste.window_ranges(k.s, v_s);
  -- After a long time without upkeep, in parts of about 16,384 messages: each lane is counted
  -- by itself, and with parts the shared pages are in the cache. Positions that the sequence
  -- jumped over hold no messages, and each part costs a look at each lane.
  v_parts := case when (v_last >> 22) - (k.last_value >> 22) < 16 then v_last - k.last_value else v_last & 4194303 end / 16384;
  v_parts := least(v_parts, 1024, 16384 / greatest((select sum(q.lanes) from posthaste.queue_settings q where q.dropped_at is null), 1));
  if v_parts > 1 then
    v_step := greatest((select sum(r.hi - r.lo) / v_parts from unnest(v_lo, v_hi) r (lo, hi)), 1);
    select array_agg(x.lo), array_agg(least(x.lo + v_step, r.hi)) into v_lo, v_hi
      from unnest(v_lo, v_hi) r (lo, hi) cross join generate_series(r.lo, r.hi - 1, v_step) x (lo);
  end if;
  update posthaste.counters set before_sent = sent, before_done = done, before_at = counted_at, counted_at = v_now
   where counted_at < v_now - interval '500 milliseconds';
  with sent as materialized (
    select q.id, (
        select coalesce(sum(x.rows), 0)
          from generate_series(0, q.lanes - 1) g
         cross join unnest(v_lo, v_hi) r (lo, hi)
         cross join lateral (
           select count(*) as rows
             from posthaste.entries e
            where e.queue_id = q.id and e.lane = g and e.plain
              and e.xid >= r.lo::text::xid8 and e.xid < r.hi::text::xid8
              and posthaste.in_slots((e.pos >> 22) & 15, l.a, l.b, l.c, l.d, l.e, l.f)) x)
        + case when q.keyed then (
        select coalesce(sum(x.rows), 0)
          from generate_series(0, q.lanes - 1) g
         cross join unnest(v_lo, v_hi) r (lo, hi)
         cross join lateral (
           select count(*) as rows
             from ((select e.pos from posthaste.entries e
                     where e.queue_id = q.id and e.lane = g and e.ord is not null and e.due_at is null and e.ord = e.xid
                       and e.ord >= r.lo::text::xid8 and e.ord < r.hi::text::xid8
                       and posthaste.in_slots((e.pos >> 22) & 15, l.a, l.b, l.c, l.d, l.e, l.f)
                     order by e.ord, e.pos)
                   union all
                   (select e.pos from posthaste.entries e
                     where e.queue_id = q.id and e.lane = g and e.ord is not null and e.due_at is null and e.ord <> e.xid
                       and e.xid >= r.lo::text::xid8 and e.xid < r.hi::text::xid8
                       and posthaste.in_slots((e.pos >> 22) & 15, l.a, l.b, l.c, l.d, l.e, l.f)
                     order by e.xid, e.ord, e.pos)) y) x) else 0 end as rows
      from posthaste.queue_settings q
     where q.dropped_at is null
  )
  update posthaste.counters x set sent = x.sent + s.rows
    from (select s.rows, y.ctid from sent s cross join lateral (select y.ctid from posthaste.counters y where y.queue_id = s.id order by y.queue_id, y.subscription) y
           where s.rows > 0) s
   where x.ctid = s.ctid;
  v_any := found;
  -- Ordered: otherwise the choice of the index is left to chance.
  for n in select q.id, d.for_subscription, d.rows, d.first
             from posthaste.queue_settings q
            cross join lateral (
              select e.for_subscription, count(*) as rows, count(*) filter (where e.message_id is null) as first
                from generate_series(0, q.lanes - 1) g
               cross join unnest(v_lo, v_hi) r (lo, hi)
               cross join lateral (
                 select e.for_subscription, e.message_id from posthaste.entries e
                  where e.queue_id = q.id and e.lane = g and e.due_at is not null
                    and e.xid >= r.lo::text::xid8 and e.xid < r.hi::text::xid8
                    and posthaste.in_slots((e.pos >> 22) & 15, l.a, l.b, l.c, l.d, l.e, l.f)
                    -- Of the events, only those of replays in keyed queues, which append nothing else.
                    and (e.message_id is distinct from 0 or e.story -> 0 ? 'id' and e.story -> 0 ? 'go')
                  order by e.xid, e.pos) e
               group by e.for_subscription) d
            where q.dropped_at is null loop
    if n.for_subscription is not null then
      update posthaste.counters set again = again + n.rows where queue_id = n.id and subscription = n.for_subscription;
      v_any := true;
    elsif n.first > 0 then
      update posthaste.counters set sent = sent + n.first where queue_id = n.id;
      v_any := true;
    end if;
  end loop;
  for n in select x.reader >> 10 as subscriber, sum(x.fresh) as settled, sum(x.done) as done
             from unnest(v_lo, v_hi) r (lo, hi)
            cross join lateral (
              select x.reader, x.fresh, x.done from posthaste.settlements x
               where x.xid >= r.lo::text::xid8 and x.xid < r.hi::text::xid8
                 and posthaste.in_slots(x.slot, l.a, l.b, l.c, l.d, l.e, l.f)
               order by x.xid) x
            group by 1 loop
    update posthaste.counters set settled = settled + n.settled, done = done + n.done
     where queue_id = n.subscriber >> 10 and subscription = n.subscriber & 1023;
    v_any := true;
  end loop;
  for n in select x.reader >> 10 as subscriber, count(*) filter (where x.outcome = 'retried') as retried, count(*) filter (where x.outcome = 'lost') as lost, count(*) filter (where x.outcome = 'expired') as expired,
                    count(*) filter (where x.outcome in ('retried', 'lost', 'released')) as again
             from unnest(v_lo, v_hi) r (lo, hi)
            cross join lateral (
              select x.reader, x.outcome from posthaste.outcomes x
               where x.xid >= r.lo::text::xid8 and x.xid < r.hi::text::xid8
                 and posthaste.in_slots(x.slot, l.a, l.b, l.c, l.d, l.e, l.f)
               order by x.xid) x
            group by 1 loop
    -- In a keyed queue they come back without an entry in the lanes.
    update posthaste.counters set retried = retried + n.retried, lost = lost + n.lost, expired = expired + n.expired,
           again = again + case when exists (select from posthaste.queue_settings q where q.id = n.subscriber >> 10 and q.keyed) then n.again else 0 end
     where queue_id = n.subscriber >> 10 and subscription = n.subscriber & 1023;
  end loop;
  -- A message that a late acknowledgement settled is not delivered again.
  for n in select x.subscriber, count(*) filter (where x.outcome <> 'done') as withdrawn, count(*) filter (where x.outcome = 'done') as done
             from unnest(v_lo, v_hi) r (lo, hi)
            cross join lateral (
              select x.subscriber, x.outcome from posthaste.cancelled x
               where x.noted >= r.lo::text::xid8 and x.noted < r.hi::text::xid8 and x.outcome in ('cancelled', 'done', 'moved')
               order by x.noted) x
            group by 1 loop
    update posthaste.counters set dropped = dropped + n.withdrawn, again = again - n.done, done = done + n.done
     where queue_id = n.subscriber >> 10 and subscription = n.subscriber & 1023;
  end loop;
  update posthaste.counted c set s = v_s, last_value = v_last, at = v_now;
  return v_any;
end $$;
