-- posthaste.slot_unread: the reader that is not past a slot, or null if all are. A reader that is
-- past it stays past it: the slot gets no entries, and cursors do not move back.
-- One statement of a few index probes per reader selects them; those that may have entries in the
-- slot are examined exactly.
-- Arguments: slot. Reads: queue_settings, subscriptions, claims, entries,
-- cancelled, carried.
create or replace function posthaste.slot_unread(p_slot int)
returns text language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set enable_hashjoin = off set enable_mergejoin = off set enable_material = off set enable_memoize = off set jit = off as $$
declare
  v_now pg_snapshot := posthaste.snapshot_now();
  l posthaste.live := posthaste.live_slots();
  v_only posthaste.live := row(p_slot, p_slot, 1, 0, 1, 0);
  q record;
  v_cursor posthaste.claims;
  v_due posthaste.claims;
  v_slice record;
  v_rest boolean;
  k posthaste.carried;
  v_sub posthaste.subscriptions;
begin
  -- Ordered, here and below: otherwise the choice of the index is left to chance. A cursor whose
  -- snapshots are in another row has nulls here: then any entry of the lane in the slot leads to
  -- the exact examination.
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
                 where e.queue_id = x.id and e.lane = g and e.plain and posthaste.slot_of(e.pos) = p_slot
                   and e.xid >= coalesce(pg_snapshot_xmin(f.s), '0')
                 order by e.xid, e.pos limit 1) is not null
            or x.keyed
               and (select e.pos from posthaste.entries e
                     where e.queue_id = x.id and e.lane = g and e.ord is not null and e.due_at is null and posthaste.slot_of(e.pos) = p_slot
                       and e.ord >= coalesce(pg_snapshot_xmin(f.s), '0')
                     order by e.ord, e.pos limit 1) is not null
            or (select e.pos from posthaste.entries e
                 where e.queue_id = x.id and e.lane = g and e.due_at is not null and posthaste.slot_of(e.pos) = p_slot
                   and e.xid >= coalesce(pg_snapshot_xmin(b.s), '0')
                 order by e.xid, e.pos limit 1) is not null
            or (select e.pos from posthaste.entries e
                 where e.queue_id = x.id and e.lane = g and e.due_at is not null and posthaste.slot_of(e.pos) = p_slot
                   and e.due_at > coalesce(b.t, '-infinity')
                 order by e.due_at, e.pos limit 1) is not null)
  loop
    v_cursor := posthaste.cursor_of(q.reader, l);
    v_due := posthaste.cursor_of(q.reader + 1, l);
    if v_cursor.slot = p_slot or v_due.slot = p_slot then
      return format('subscription %L of queue %L has its cursor in it', q.subscription, q.name);
    end if;
    if q.keyed then
      if not v_cursor.ended and cardinality((posthaste.ordered_slice(q.id, q.lane, v_cursor.s0, v_cursor.s1, v_cursor.last_xid, v_cursor.last_pos, 1, v_only)).poss) > 0
         or cardinality((posthaste.ordered_slice(q.id, q.lane, v_cursor.s1, v_now, '0', 0, 1, v_only)).poss) > 0 then
        return format('subscription %L of queue %L has not handed out all of it', q.subscription, q.name);
      end if;
    elsif v_cursor.part = 3 then
      -- A bounded number at a time: posthaste.sift_on moves the cursor forward.
      v_slice := posthaste.sifted_slice(q.id, q.lane, v_cursor, v_now, 1, v_only);
      if (v_slice.c).places > 0 then
        return format('subscription %L of queue %L has not handed out all of it', q.subscription, q.name);
      elsif not (v_slice.c).ended then
        return format('subscription %L of queue %L has not filtered all of it', q.subscription, q.name);
      end if;
    elsif (not v_cursor.ended and (select places from posthaste.fresh_slice(q.id, q.lane, v_cursor.s0, v_cursor.s1, v_cursor.last_xid, v_cursor.last_pos, 1, v_only)) > 0)
       or (select places from posthaste.fresh_slice(q.id, q.lane, v_cursor.s1, v_now, '0', 0, 1, v_only)) > 0 then
      return format('subscription %L of queue %L has not handed out all of it', q.subscription, q.name);
    end if;
    if v_due.sifted is not null then
      select x.* into v_sub from posthaste.subscriptions x where x.queue_id = q.id and x.number = q.number;
    end if;
    -- The rest of the current window, entries that became visible since, and visible entries
    -- that become due later.
    v_rest := false;
    v_cursor := v_due;
    while not v_rest and (not v_cursor.ended or v_cursor.part = 1) loop
      if v_cursor.ended then
        v_cursor.part := 2;
        v_cursor.last_xid := '0';
        v_cursor.last_pos := 0;
        v_cursor.last_due := '-infinity';
      end if;
      v_slice := posthaste.due_slice(q.id, q.number, q.lane, v_cursor, 1, true, v_only);
      v_cursor := v_slice.w;
      v_rest := v_cursor.places > 0;
    end loop;
    v_cursor := v_due;
    v_cursor.part := 1;
    v_cursor.s0 := v_due.s1;
    v_cursor.s1 := v_now;
    v_cursor.t0 := v_due.t1;
    v_cursor.t1 := 'infinity';
    v_cursor.last_xid := '0';
    v_cursor.last_pos := 0;
    loop
      exit when v_rest;
      v_slice := posthaste.due_slice(q.id, q.number, q.lane, v_cursor, 1, true, v_only);
      v_cursor := v_slice.w;
      v_rest := v_cursor.places > 0;
      exit when v_cursor.ended;
    end loop;
    -- Not over carried entries: there may be millions.
    k := null;
    select * into k from posthaste.carried y where y.slot = p_slot and y.queue_id = q.id and y.lane = q.lane;
    v_rest := v_rest
      or (select e.pos from posthaste.entries e
           where e.queue_id = q.id and e.lane = q.lane and e.due_at is not null and e.due_at > v_due.t1 and e.due_at <= coalesce(k.since, 'infinity')
             and posthaste.slot_of(e.pos) = p_slot
             and (e.for_subscription is null or e.for_subscription = q.number)
             and (v_due.sifted is null or posthaste.is_for(v_sub, e.for_subscription, e.xid, e.due_at, e.kind, e.headers))
             and not exists (select from posthaste.cancelled x where x.pos = e.pos and x.subscriber = q.reader >> 10)
           order by e.due_at, e.pos limit 1) is not null
      or k.due_at is not null
         and (select e.pos from posthaste.entries e
               where e.queue_id = q.id and e.lane = q.lane and e.due_at is not null and (e.due_at, e.pos) > (greatest(k.due_at, v_due.t1), case when v_due.t1 > k.due_at then 9223372036854775807 else k.pos end)
                 and posthaste.slot_of(e.pos) = p_slot
                 and (e.for_subscription is null or e.for_subscription = q.number)
                 and (v_due.sifted is null or posthaste.is_for(v_sub, e.for_subscription, e.xid, e.due_at, e.kind, e.headers))
                 and not exists (select from posthaste.cancelled x where x.pos = e.pos and x.subscriber = q.reader >> 10)
               order by e.due_at, e.pos limit 1) is not null;
    if v_rest then
      return format('subscription %L of queue %L has scheduled messages or retries in it', q.subscription, q.name);
    end if;
  end loop;
  return null;
end $$;
