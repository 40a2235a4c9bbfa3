-- posthaste.slot_unread: which reader is not past a slot, or null if all are. A
-- reader that is stays so: the slot gets no entries, and cursors do not go back.
-- Readers are chosen by one statement of a few index probes each; those that may
-- have something in the slot are examined exactly.
-- Arguments: slot. Reads: queue_settings, subscriptions, claims, entries,
-- cancelled, carried.
create or replace function posthaste.slot_unread(p_slot int)
returns text language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set enable_hashjoin = off set enable_mergejoin = off set enable_material = off set enable_memoize = off set jit = off as $$
declare
  v_now pg_snapshot := posthaste.snapshot_now();
  l posthaste.live := posthaste.live_slots();
  o posthaste.live := row(p_slot, p_slot, 1, 0, 1, 0);
  q record;
  c posthaste.claims;
  w posthaste.claims;
  d record;
  v_rest boolean;
  k posthaste.carried;
  v_sub posthaste.subscriptions;
begin
  -- Ordered, here and below, or the choice of the index would be left to chance.
  -- A cursor whose snapshots stand in another row has nulls here: then any entry
  -- of the lane in the slot will do for a closer look.
  for q in
    select x.id, x.name, x.keyed, u.number, u.name as subscription, g as lane, posthaste.reader_key(x.id, u.number, g, 0) as reader
      from posthaste.queue_settings x
     cross join lateral (select u.number, u.name from posthaste.subscriptions u where u.queue_id = x.id and u.dropped_at is null order by u.number) u
     cross join lateral generate_series(0, x.lanes - 1) g
      left join lateral (
        select y.slot, case when y.ended then y.s1 else y.s0 end as s
          from posthaste.claims y
         where y.reader = posthaste.reader_key(x.id, u.number, g, 0) and posthaste.in_slots(y.slot, l.a, l.b, l.c, l.d, l.e, l.f)
         order by y.reader desc, y.seq desc limit 1) f on true
      left join lateral (
        select y.slot, case when y.ended and y.part = 2 then y.s1 else y.s0 end as s, case when y.ended and y.part = 2 then y.t1 else y.t0 end as t
          from posthaste.claims y
         where y.reader = posthaste.reader_key(x.id, u.number, g, 1) and posthaste.in_slots(y.slot, l.a, l.b, l.c, l.d, l.e, l.f)
         order by y.reader desc, y.seq desc limit 1) b on true
     where x.dropped_at is null
       and (f.slot = p_slot or b.slot = p_slot
            or (select e.pos from posthaste.entries e
                 where e.queue_id = x.id and e.lane = g and e.plain and ((e.pos >> 22) & 15) = p_slot
                   and e.xid >= coalesce(pg_snapshot_xmin(f.s), '0')
                 order by e.xid, e.pos limit 1) is not null
            or x.keyed
               and (select e.pos from posthaste.entries e
                     where e.queue_id = x.id and e.lane = g and e.ord is not null and e.due_at is null and ((e.pos >> 22) & 15) = p_slot
                       and e.ord >= coalesce(pg_snapshot_xmin(f.s), '0')
                     order by e.ord, e.pos limit 1) is not null
            or (select e.pos from posthaste.entries e
                 where e.queue_id = x.id and e.lane = g and e.due_at is not null and ((e.pos >> 22) & 15) = p_slot
                   and e.xid >= coalesce(pg_snapshot_xmin(b.s), '0')
                 order by e.xid, e.pos limit 1) is not null
            or (select e.pos from posthaste.entries e
                 where e.queue_id = x.id and e.lane = g and e.due_at is not null and ((e.pos >> 22) & 15) = p_slot
                   and e.due_at > coalesce(b.t, '-infinity')
                 order by e.due_at, e.pos limit 1) is not null)
  loop
    c := posthaste.cursor_of(q.reader, l);
    w := posthaste.cursor_of(q.reader + 1, l);
    if c.slot = p_slot or w.slot = p_slot then
      return format('subscription %L of queue %L has its cursor in it', q.subscription, q.name);
    end if;
    if q.keyed then
      if not c.ended and cardinality((posthaste.ordered_slice(q.id, q.lane, c.s0, c.s1, c.last_xid, c.last_pos, 1, o)).poss) > 0
         or cardinality((posthaste.ordered_slice(q.id, q.lane, c.s1, v_now, '0', 0, 1, o)).poss) > 0 then
        return format('subscription %L of queue %L has not handed out all of it', q.subscription, q.name);
      end if;
    elsif c.part = 3 then
      -- At most so much at a time: posthaste.sift_on brings the cursor on.
      d := posthaste.sifted_slice(q.id, q.lane, c, v_now, 1, o);
      if (d.c).places > 0 then
        return format('subscription %L of queue %L has not handed out all of it', q.subscription, q.name);
      elsif not (d.c).ended then
        return format('subscription %L of queue %L has not come through all of it', q.subscription, q.name);
      end if;
    elsif (not c.ended and (select places from posthaste.fresh_slice(q.id, q.lane, c.s0, c.s1, c.last_xid, c.last_pos, 1, o)) > 0)
       or (select places from posthaste.fresh_slice(q.id, q.lane, c.s1, v_now, '0', 0, 1, o)) > 0 then
      return format('subscription %L of queue %L has not handed out all of it', q.subscription, q.name);
    end if;
    if w.sifted is not null then
      select x.* into v_sub from posthaste.subscriptions x where x.queue_id = q.id and x.number = q.number;
    end if;
    -- What is left of the present window, what became visible since, and
    -- what was visible and falls due later.
    v_rest := false;
    c := w;
    while not v_rest and (not c.ended or c.part = 1) loop
      if c.ended then
        c.part := 2;
        c.last_xid := '0';
        c.last_pos := 0;
        c.last_due := '-infinity';
      end if;
      d := posthaste.due_slice(q.id, q.number, q.lane, c, 1, true, o);
      c := d.w;
      v_rest := c.places > 0;
    end loop;
    c := w;
    c.part := 1;
    c.s0 := w.s1;
    c.s1 := v_now;
    c.t0 := w.t1;
    c.t1 := 'infinity';
    c.last_xid := '0';
    c.last_pos := 0;
    loop
      exit when v_rest;
      d := posthaste.due_slice(q.id, q.number, q.lane, c, 1, true, o);
      c := d.w;
      v_rest := c.places > 0;
      exit when c.ended;
    end loop;
    -- Not over what was carried away: that may be millions.
    k := null;
    select * into k from posthaste.carried y where y.slot = p_slot and y.queue_id = q.id and y.lane = q.lane;
    v_rest := v_rest
      or (select e.pos from posthaste.entries e
           where e.queue_id = q.id and e.lane = q.lane and e.due_at is not null and e.due_at > w.t1 and e.due_at <= coalesce(k.since, 'infinity')
             and ((e.pos >> 22) & 15) = p_slot
             and (e.for_subscription is null or e.for_subscription = q.number)
             and (w.sifted is null or posthaste.is_for(v_sub, e.for_subscription, e.xid, e.due_at, e.kind, e.headers))
             and not exists (select from posthaste.cancelled x where x.pos = e.pos and x.subscriber = q.reader >> 10)
           order by e.due_at, e.pos limit 1) is not null
      or k.due_at is not null
         and (select e.pos from posthaste.entries e
               where e.queue_id = q.id and e.lane = q.lane and e.due_at is not null and (e.due_at, e.pos) > (greatest(k.due_at, w.t1), case when w.t1 > k.due_at then 9223372036854775807 else k.pos end)
                 and ((e.pos >> 22) & 15) = p_slot
                 and (e.for_subscription is null or e.for_subscription = q.number)
                 and (w.sifted is null or posthaste.is_for(v_sub, e.for_subscription, e.xid, e.due_at, e.kind, e.headers))
                 and not exists (select from posthaste.cancelled x where x.pos = e.pos and x.subscriber = q.reader >> 10)
               order by e.due_at, e.pos limit 1) is not null;
    if v_rest then
      return format('subscription %L of queue %L has scheduled messages or retries in it', q.subscription, q.name);
    end if;
  end loop;
  return null;
end $$;
