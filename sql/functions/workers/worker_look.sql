-- posthaste.worker_look: looks at a worker's queues, and moves the mark of its oldest open
-- claim.
-- Arguments: worker; arrays of queues and subscriptions to look at.
-- Returns: per queue, in order: ready, next_due (seconds); and in each row maintain (messages
-- flowed since the last round of maintenance) and rescue (a worker is overdue or gone, or a
-- lease has ended). At least one row. A dropped queue has ready null.
-- Bounded: one statement probes all lanes, and only those that may have messages are looked at
-- exactly. A call stops after the work of 4,096 probes; the queues beyond have ready null, and
-- the next call begins with them.
-- Updates: registrations.
create or replace function posthaste.worker_look(p_worker bigint, p_queues text[], p_subscriptions text[])
returns table (ready boolean, next_due double precision, maintain boolean, rescue boolean)
language plpgsql volatile security definer
set max_parallel_workers_per_gather = 0 set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set enable_hashjoin = off set enable_mergejoin = off set enable_material = off set enable_memoize = off set jit = off as $$
declare
  l posthaste.live := posthaste.live_slots();
  t timestamptz := clock_timestamp();
  v record;
  v_look record;
  v_count int := cardinality(p_queues);
  v_first int := 0;
  v_ready boolean[] := array_fill(null::boolean, array[cardinality(p_queues)]);
  v_next double precision[] := array_fill(null::double precision, array[cardinality(p_queues)]);
  v_work int := 0;
  v_seen int := 0;
begin
  maintain := (select p.last_value from posthaste.positions p) <> (select k.last_value from posthaste.counted k);
  rescue := exists (select from posthaste.registrations w where (w.lost_at is not null or w.ended_at is not null) and not w.cleared
                       or posthaste.worker_overdue(w));
  if v_count > 0 then
    v_first := coalesce((select w.looked from posthaste.registrations w where w.id = p_worker), 0) % v_count;
  end if;
  for v in
    select o.n, o.id, o.lanes, o.number, o.paused, x.idle, x.due_at,
           o.number is not null and exists (select from posthaste.lease_cursors z where z.subscriber = (o.id::bigint << 10 | o.number)) as received
      -- Ended here and not by leaving the loop, which reads ahead.
      from (select 1 + (v_first + i) % v_count as n, q.id, case when q.kinds_aside is not null then q.lanes else q.width * case when q.prioritized then 4 else 1 end end as lanes, q.keyed, q.paused_at is not null as paused, s.number, s.since,
                   sum(1 + coalesce(q.lanes, 0)) over (order by i rows between unbounded preceding and current row) - coalesce(q.lanes, 0) as work
              from generate_series(0, v_count - 1) i
              left join posthaste.queue_settings q on q.name = p_queues[1 + (v_first + i) % v_count] and q.dropped_at is null
              left join posthaste.subscriptions s on s.queue_id = q.id and s.dropped_at is null
                                                 and s.name = coalesce(nullif(p_subscriptions[1 + (v_first + i) % v_count], ''), 'default')) o
      -- Idle: both cursors are at the end of their windows, and nothing became visible or due
      -- since, as in posthaste.due_idle.
      left join lateral (
        select bool_and(coalesce(f.ended, true) and y.s is not null
                        and coalesce((select e.pos from posthaste.entries e
                              where e.queue_id = o.id and e.lane = g and e.plain and e.xid >= pg_snapshot_xmin(y.s)
                                and posthaste.in_slots((e.pos >> 22) & 15, l.a, l.b, l.c, l.d, l.e, l.f)
                              order by e.xid, e.pos limit 1), 0) = 0
                        and (not o.keyed
                             or not exists (select from posthaste.keys z where z.subscriber = o.id::bigint << 10 | o.number and z.lane = g and z.waits)
                                and not posthaste.has_line(o.id::bigint << 10 | o.number, g, b.turns)
                                and (greatest(b.t1, b.at) > t + interval '2 seconds') is not true -- the clock was set back
                                and coalesce((select e.pos from posthaste.entries e
                                      where e.queue_id = o.id and e.lane = g and e.ord is not null and e.due_at is null and e.ord >= pg_snapshot_xmin(y.s)
                                        and posthaste.in_slots((e.pos >> 22) & 15, l.a, l.b, l.c, l.d, l.e, l.f)
                                      order by e.ord, e.pos limit 1), 0) = 0)
                        and coalesce(b.ended and b.part = 2, true) and z.s is not null
                        and coalesce((select e.pos from posthaste.entries e
                              where e.queue_id = o.id and e.lane = g and e.due_at is not null and e.xid >= pg_snapshot_xmin(z.s)
                                and posthaste.in_slots((e.pos >> 22) & 15, l.a, l.b, l.c, l.d, l.e, l.f)
                              order by e.xid, e.pos limit 1), 0) = 0
                        and (d.due_at is null or d.due_at > t)) as idle,
               min(d.due_at) as due_at
          from generate_series(0, o.lanes - 1) g
          left join lateral (
            select k.id, k.ended, k.s1 from posthaste.claims k
             where k.reader = posthaste.reader_key(o.id, o.number, g, 0) and posthaste.in_slots(k.slot, l.a, l.b, l.c, l.d, l.e, l.f)
             order by k.reader desc, k.seq desc limit 1) f on true
          left join lateral (
            select k.id, k.ended, k.part, k.s1, k.t1, k.at, k.turns from posthaste.claims k
             where k.reader = posthaste.reader_key(o.id, o.number, g, 1) and posthaste.in_slots(k.slot, l.a, l.b, l.c, l.d, l.e, l.f)
             order by k.reader desc, k.seq desc limit 1) b on true
         cross join lateral (select case when f.id is null then o.since else f.s1 end as s) y
         cross join lateral (select case when b.id is null then o.since else b.s1 end as s) z
          left join lateral (
            select e.due_at from posthaste.entries e
             where e.queue_id = o.id and e.lane = g and e.due_at is not null and e.due_at > coalesce(b.t1, '-infinity')
               and posthaste.in_slots((e.pos >> 22) & 15, l.a, l.b, l.c, l.d, l.e, l.f)
             order by e.due_at, e.pos limit 1) d on true) x on o.number is not null
     where o.work <= 4096
  loop
    v_seen := v_seen + 1;
    v_work := v_work + 1;
    if v.number is not null then
      v_work := v_work + v.lanes;
      if v.received and not rescue then
        v_work := v_work + 8;
        rescue := posthaste.leases_ended(v.id::bigint << 10 | v.number);
      end if;
      if v.idle or v.paused then
        v_ready[v.n] := false;
        v_next[v.n] := case when v.due_at is not null and not v.paused then greatest(0, extract(epoch from v.due_at - clock_timestamp())) end;
      else
        v_work := v_work + 16 * v.lanes;
        v_look := posthaste.look(v.id, v.number, (
          select case when q.kinds_aside is null then array(select generate_series(0, v.lanes - 1))
                      else posthaste.lanes_for(q.width, q.prioritized, q.kind_lanes, q.kinds_aside, q.kinds_paused,
                             (select w.kinds from posthaste.registrations w where w.id = p_worker) -> q.name -> coalesce(nullif(p_subscriptions[v.n], ''), 'default'), 0) end
            from posthaste.queue_settings q where q.id = v.id));
        v_ready[v.n] := v_look.ready;
        v_next[v.n] := v_look.next_due;
      end if;
    end if;
    exit when v_work >= 4096;
  end loop;
  if v_seen < v_count then
    update posthaste.registrations w set looked = (v_first + v_seen) % v_count where w.id = p_worker;
  end if;
  return query select v_ready[g], v_next[g], maintain, rescue from generate_series(1, greatest(v_count, 1)) g order by g;
  -- Last, because it keeps this worker from claiming until the transaction ends.
  if p_worker is not null then
    perform posthaste.move_mark(p_worker);
  end if;
end $$;
