-- posthaste.slot_blocker: why a slot cannot be reclaimed, or null if it can.
-- A slot is free when the sequence has left it and every transaction that was in
-- progress then is finished, every reader is past all its entries, no open claim
-- lies in it or holds one of its entries, and no reader's newest claim lies in
-- it. Decided from cursors, open claims and a few index probes.
-- Arguments: slot. Reads: slots, claims, entries, leases, registrations.
create or replace function posthaste.slot_blocker(p_slot int)
returns text language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set enable_hashjoin = off set enable_mergejoin = off set enable_material = off set jit = off as $$
declare
  m posthaste.slots;
  v_now pg_snapshot := posthaste.snapshot_now();
  l posthaste.live := posthaste.live_slots();
  o posthaste.live := row(p_slot, p_slot, 1, 0, 1, 0);
  q record;
  c posthaste.claims;
  w posthaste.claims;
  d record;
  v_reader bigint;
  v_id bigint;
  v_text text;
  v_rest boolean;
begin
  select * into m from posthaste.slots where slot = p_slot;
  if not m.live then
    return 'it is free already';
  elsif m.left_at is null or (select (last_value >> 22) & 15 from posthaste.positions) = p_slot then
    return 'it is in use';
  end if;
  select x::text into v_text from pg_snapshot_xip(m.left_at) x where not pg_visible_in_snapshot(x, v_now) limit 1;
  if v_text is not null then
    return format('transaction %s, which may have written into it, is still open', v_text);
  end if;
  for q in select x.id, x.name, x.lanes, u.number, u.name as subscription
             from posthaste.queue_settings x join posthaste.subscriptions u on u.queue_id = x.id
            where x.dropped_at is null and u.dropped_at is null loop
    for v_lane in 0..q.lanes - 1 loop
      v_reader := posthaste.reader_key(q.id, q.number, v_lane, 0);
      c := posthaste.cursor_of(v_reader, l);
      if c.slot = p_slot then
        return format('subscription %L of queue %L has its cursor in it', q.subscription, q.name);
      end if;
      if (not c.ended and (select places from posthaste.fresh_slice(q.id, v_lane, c.s0, c.s1, c.last_xid, c.last_pos, 1, o)) > 0)
         or (select places from posthaste.fresh_slice(q.id, v_lane, c.s1, v_now, '0', 0, 1, o)) > 0 then
        return format('subscription %L of queue %L has not handed out all of it', q.subscription, q.name);
      end if;
      w := posthaste.cursor_of(v_reader + 1, l);
      if w.slot = p_slot then
        return format('subscription %L of queue %L has its cursor in it', q.subscription, q.name);
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
        d := posthaste.due_slice(q.id, q.number, v_lane, c, 1, true, o);
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
        d := posthaste.due_slice(q.id, q.number, v_lane, c, 1, true, o);
        c := d.w;
        v_rest := c.places > 0;
        exit when c.ended;
      end loop;
      -- Ordered, here and below, or the choice of the index would be left to chance.
      if v_rest or (
           select e.pos from posthaste.entries e
            where e.queue_id = q.id and e.lane = v_lane and e.due_at is not null and e.due_at > w.t1 and ((e.pos >> 22) & 15) = p_slot
              and (e.for_subscription is null or e.for_subscription = q.number)
              and not exists (select from posthaste.cancelled x where x.pos = e.pos and x.subscriber = v_reader >> 10)
            order by e.due_at, e.pos limit 1) is not null then
        return format('subscription %L of queue %L has scheduled messages or retries in it', q.subscription, q.name);
      end if;
    end loop;
  end loop;
  for v_id in select r.id from posthaste.registrations r loop
    for c in select k.* from posthaste.worker_claims(v_id, (select r.oldest_open from posthaste.registrations r where r.id = v_id)) k loop
      if posthaste.holds_slot(c, p_slot) then
        return format('claim %s of worker %s is open', c.id, v_id);
      end if;
    end loop;
  end loop;
  for v_id in
    select distinct e.claim
      from posthaste.subscriptions u
     cross join lateral (
       select e.claim from posthaste.leases e
        where e.subscriber = (u.queue_id::bigint << 10 | u.number)
          and e.until > coalesce((select k.t from posthaste.lease_cursors k where k.subscriber = (u.queue_id::bigint << 10 | u.number)), '-infinity')
          and posthaste.in_slots(e.slot, l.a, l.b, l.c, l.d, l.e, l.f)
        order by e.until) e
     where u.dropped_at is null and exists (select from posthaste.queue_settings x where x.id = u.queue_id and x.dropped_at is null)
    union
    -- A receive may commit after its lease has ended.
    select e.claim
      from posthaste.lease_cursors z
     cross join lateral posthaste.window_ranges(z.s, v_now) y
     cross join lateral unnest(y.lo, y.hi) r (lo, hi)
     cross join lateral (
       select e.claim from posthaste.leases e
        where e.subscriber = z.subscriber and e.xid >= r.lo::text::xid8 and e.xid < r.hi::text::xid8
          and posthaste.in_slots(e.slot, l.a, l.b, l.c, l.d, l.e, l.f)
        order by e.xid) e
  loop
    select k.* into c from posthaste.claims k where k.slot = (v_id >> 22) & 15 and k.id = v_id;
    if posthaste.holds_slot(c, p_slot) then
      return format('claim %s, received until its lease ends, is open', c.id);
    end if;
  end loop;
  return null;
end $$;
