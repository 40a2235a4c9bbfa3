-- posthaste.claim_lane: hands out the next entries of one lane's two readers.
-- Finds only the bounds, under the readers' locks; the rows are read outside.
-- Arguments: queue, subscription, lane; how many; the holder and its number, or
-- null for a lease by time; until when that lease runs; single: each delivery is
-- settled by itself; alone: one that must run alone may be handed out; due:
-- whether to look at the due track also where something is fresh; wait: whether
-- to wait for the readers; closed: the claims are settled as they are made; keys:
-- what the claims are to have there, as in claims.
-- Returns: handed, or -1 if a reader was busy; made, its claims; live, the slots that it looked into; wants_idle; next_due, where asked
-- for and known and nothing was handed out.
-- Locks: the readers, ascending. The settings that hold its plans are its
-- callers': to pin them once more would cost each claim as much as a query. Inserts: claims, leases.
create or replace function posthaste.claim_lane(p_queue int, p_subscription int, p_lane int, p_max int,
  p_holder bigint, p_number bigint, p_until timestamptz, p_single boolean, p_alone boolean, p_due boolean, p_wait boolean, p_closed boolean default false, p_keys bigint[] default null,
  out handed int, out made posthaste.claims[], out live posthaste.live, out wants_idle boolean, out next_due timestamptz)
language plpgsql volatile
set search_path = pg_catalog, pg_temp as $$
declare
  v_reader bigint := posthaste.reader_key(p_queue, p_subscription, p_lane, 0);
  s pg_snapshot;
  t timestamptz;
  c posthaste.claims;
  w posthaste.claims;
  d record;
  f record;
  v_found int;
  v_left int := p_max;
  v_alone boolean := false;
  v_walked int := 0;
  v_new boolean := false;
  v_more boolean := false;
  v_due_first boolean := p_due and (p_max > 1 or random() < 0.5);
begin
  handed := -1;
  wants_idle := false;
  if not posthaste.lock_reader(v_reader, p_wait) then
    return;
  end if;
  if p_due and not posthaste.lock_reader(v_reader + 1, p_wait) then
    return;
  end if;
  handed := 0;
  made := '{}';
  -- Only now, in new statements: a snapshot from before the lock is held would
  -- not see what the claim before this one saw.
  s := posthaste.snapshot_now();
  t := clock_timestamp();
  live := posthaste.live_slots();

  -- While both tracks have work each gets about half of a claim; of a claim of
  -- one message, every other.
  for v_step in 1..2 loop
    exit when v_alone or v_left = 0;
    if (v_step = 1) = v_due_first then
      if not p_due then
        exit when handed > 0 or not posthaste.lock_reader(v_reader + 1, p_wait);
        s := posthaste.snapshot_now();
        t := clock_timestamp();
        live := posthaste.live_slots();
      end if;
      w := posthaste.cursor_of(v_reader + 1, live);
      t := greatest(t, w.t1);
      d := posthaste.due_idle(p_queue, p_lane, w, t, live);
      next_due := d.next_due;
      continue when d.idle;
      next_due := null;
      for v_round in 1..4 loop
        c := w;
        if c.ended then
          if c.part = 1 then
            w.part := 2;
          else
            w.part := 1;
            w.s0 := c.s1;
            w.s1 := s;
            w.t0 := c.t1;
            w.t1 := t;
            w.window_claim := null;
            v_new := true;
          end if;
          w.last_xid := '0';
          w.last_pos := 0;
          w.last_due := '-infinity';
        end if;
        d := posthaste.due_slice(p_queue, p_subscription, p_lane, w, case when v_step = 1 then (v_left + 1) / 2 else v_left end, p_alone, live);
        w := d.w;
        v_walked := v_walked + d.walked;
        wants_idle := wants_idle or d.wants_idle;
        if w.places > 0 then
          w.keys := p_keys;
          w := posthaste.put_claim(w, p_holder, p_number, p_until, p_single, p_closed);
          made := made || w;
          handed := handed + w.places;
          v_left := v_left - w.places;
          v_alone := w.alone;
          v_walked := 0;
          exit;
        end if;
        exit when not w.ended or (w.part = 2 and v_new);
      end loop;
      -- What was walked over in vain is not walked over again.
      if v_walked > 64 then
        w := posthaste.put_claim(w, null, null, null, false);
      end if;
      if handed = 0 and not w.ended and not wants_idle then
        -- It stopped among others' and later ones: there is more to walk over.
        next_due := t;
      elsif handed = 0 and w.ended and w.part = 2 then
        select e.due_at into next_due
          from (select e.due_at, e.for_subscription
                  from posthaste.entries e
                 where e.queue_id = p_queue and e.lane = p_lane and e.due_at is not null and e.due_at > w.t1
                   and posthaste.in_slots((e.pos >> 22) & 15, live.a, live.b, live.c, live.d, live.e, live.f)
                 order by e.due_at, e.pos limit 100) e
         where e.for_subscription is null or e.for_subscription = p_subscription
         limit 1;
      end if;
    else
      c := posthaste.cursor_of(v_reader, live);
      v_found := 0;
      if c.part = 3 then
        d := posthaste.sifted_slice(p_queue, p_lane, c, s, v_left, live);
        c := d.c;
        v_found := c.places;
        v_more := v_found = 0 and not c.ended;
        -- What was walked over in vain is not walked over again.
        if v_found = 0 and d.walked > 64 then
          perform posthaste.put_claim(c, null, null, null, false);
        end if;
      else
        if not c.ended then
          f := posthaste.fresh_slice(p_queue, p_lane, c.s0, c.s1, c.last_xid, c.last_pos, v_left, live);
          v_found := f.places;
        end if;
        if v_found = 0 then
          c.s0 := c.s1;
          c.s1 := s;
          c.window_claim := null;
          f := posthaste.fresh_slice(p_queue, p_lane, c.s0, c.s1, '0', 0, v_left, live);
          v_found := f.places;
        end if;
        if v_found > 0 then
          c.part := 0;
          c.places := f.places;
          c.first_xid := f.first_xid;
          c.first_pos := f.first_pos;
          c.last_xid := f.last_xid;
          c.last_pos := f.last_pos;
          c.ended := f.places < v_left;
          c.alone := false;
          c.t0 := null;
          c.t1 := null;
        end if;
      end if;
      if v_found > 0 then
        c.keys := p_keys;
        c := posthaste.put_claim(c, p_holder, p_number, p_until, p_single, p_closed);
        made := made || c;
        v_left := v_left - v_found;
        handed := handed + v_found;
      end if;
    end if;
  end loop;
  if v_more and handed = 0 then
    -- It stopped among what is not for it: there is more to walk over.
    next_due := t;
  end if;
end $$;
