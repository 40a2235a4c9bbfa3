-- posthaste.claim_lane: hands out the next entries of one lane's two readers. It finds only
-- the bounds, under the readers' locks; the rows are read outside.
-- Arguments: queue, subscription, lane; the maximum number; the holder and its number, or null
-- for a lease; the end of the lease; single: each delivery is settled by itself; alone: a
-- message that must run alone may be handed out; due: whether to look at the due track even if
-- something is fresh; wait: whether to wait for the readers; closed: the claims are settled at
-- their creation; keys: the column keys of the claims; max_age: older messages expire; stop:
-- until when to read on after some expired; paused: kinds whose messages are set aside, and count
-- as expired ones here.
-- Returns: handed, or -1 if a reader was busy; made, its claims; live, the slots that it read;
-- wants_idle; next_due, if requested and known and nothing was handed out; expired, the number of
-- messages that expired.
-- Locks: the readers, ascending. Its callers have the settings that fix its plans: setting them
-- here again would cost each claim as much as a query. Inserts: claims, leases, settlements,
-- outcomes, entries_other, words.
create or replace function posthaste.claim_lane(p_queue int, p_subscription int, p_lane int, p_max int,
  p_holder bigint, p_number bigint, p_until timestamptz, p_single boolean, p_alone boolean, p_due boolean, p_wait boolean, p_closed boolean default false, p_keys bigint[] default null, p_max_age interval default null, p_stop timestamptz default null, p_paused text[] default null,
  out handed int, out made posthaste.claims[], out live posthaste.live, out wants_idle boolean, out next_due timestamptz, out expired int)
language plpgsql volatile
set search_path = pg_catalog, pg_temp as $$
declare
  v_reader bigint := posthaste.reader_key(p_queue, p_subscription, p_lane, 0);
  s pg_snapshot;
  t timestamptz;
  v_cursor posthaste.claims;
  v_due posthaste.claims;
  v_slice record;
  f record;
  v_found int;
  v_left int := p_max;
  v_alone boolean := false;
  v_walked int := 0;
  v_new boolean := false;
  v_more boolean := false;
  v_due_first boolean := p_due and (p_max > 1 or random() < 0.5);
  v_gone int := 0; -- how many of a slice expired or were set aside
  v_again boolean;
begin
  handed := -1;
  expired := 0;
  wants_idle := false;
  if not posthaste.lock_reader(v_reader, p_wait) then
    return;
  end if;
  if p_due and not posthaste.lock_reader(v_reader + 1, p_wait) then
    return;
  end if;
  handed := 0;
  made := '{}';
  -- Only now, in new statements: a snapshot from before the lock would not see the claim
  -- before this one.
  s := posthaste.snapshot_now();
  t := clock_timestamp();
  live := posthaste.live_slots();

  -- While both tracks have work, each gets about half of a claim; of claims of one message,
  -- every other claim.
  <<steps>>
  for v_step in 1..2 loop
    exit when v_alone or v_left = 0;
    v_again := false;
    -- Again if messages expired or were set aside, which leaves room for others.
    loop
      v_gone := 0;
      if (v_step = 1) = v_due_first then
        if not v_again then
          if not p_due then
            exit steps when handed > 0 or not posthaste.lock_reader(v_reader + 1, p_wait);
            s := posthaste.snapshot_now();
            t := clock_timestamp();
            live := posthaste.live_slots();
          end if;
          v_due := posthaste.cursor_of(v_reader + 1, live);
          t := greatest(t, v_due.t1);
          v_slice := posthaste.due_idle(p_queue, p_lane, v_due, t, live);
          next_due := v_slice.next_due;
          continue steps when v_slice.idle;
        end if;
        next_due := null;
        for v_round in 1..4 loop
          v_cursor := v_due;
          if v_cursor.ended then
            if v_cursor.part = 1 then
              v_due.part := 2;
            else
              v_due.part := 1;
              v_due.s0 := v_cursor.s1;
              v_due.s1 := s;
              v_due.t0 := v_cursor.t1;
              v_due.t1 := t;
              v_due.window_claim := null;
              v_new := true;
            end if;
            v_due.last_xid := '0';
            v_due.last_pos := 0;
            v_due.last_due := '-infinity';
          end if;
          v_slice := posthaste.due_slice(p_queue, p_subscription, p_lane, v_due, case when v_step = 1 then (v_left + 1) / 2 else v_left end, p_alone and not (v_again and handed > 0), live);
          v_due := v_slice.w;
          v_walked := v_walked + v_slice.walked;
          wants_idle := wants_idle or v_slice.wants_idle;
          if v_due.places > 0 then
            v_due.keys := p_keys;
            v_due.expired := null; -- it had those of the claim before
            if p_max_age is not null or p_paused is not null then
              v_due.expired := posthaste.expired_places(v_due, p_max_age, t, p_paused);
              v_gone := coalesce(bit_count(v_due.expired), 0);
            end if;
            v_due := posthaste.put_claim(v_due, p_holder, p_number, p_until, p_single, p_closed);
            if v_gone > 0 then
              perform posthaste.settle_expired(v_due, p_closed, p_paused);
              if p_paused is not null then
                perform posthaste.set_paused_aside(v_due, p_paused);
              end if;
            end if;
            made := made || v_due;
            handed := handed + v_due.places - v_gone;
            v_left := v_left - (v_due.places - v_gone);
            v_alone := v_due.alone and v_gone = 0;
            v_walked := 0;
            exit;
          end if;
          exit when not v_due.ended or (v_due.part = 2 and v_new);
        end loop;
        -- Entries that it walked over in vain are not walked over again.
        if v_walked > 64 then
          v_due := posthaste.put_claim(v_due, null, null, null, false);
        end if;
        if handed = 0 and not v_due.ended and not wants_idle then
          -- It stopped among entries for others and later ones: there is more to walk over.
          next_due := t;
        elsif handed = 0 and v_due.ended and v_due.part = 2 then
          select e.due_at into next_due
            from (select e.due_at, e.for_subscription
                    from posthaste.entries e
                   where e.queue_id = p_queue and e.lane = p_lane and e.due_at is not null and e.due_at > v_due.t1
                     and posthaste.in_slots((e.pos >> 22) & 15, live.a, live.b, live.c, live.d, live.e, live.f)
                   order by e.due_at, e.pos limit 100) e
           where e.for_subscription is null or e.for_subscription = p_subscription
           limit 1;
        end if;
      else
        if not v_again then
          v_cursor := posthaste.cursor_of(v_reader, live);
        end if;
        v_found := 0;
        if v_cursor.part = 3 then
          v_slice := posthaste.sifted_slice(p_queue, p_lane, v_cursor, s, v_left, live);
          v_cursor := v_slice.c;
          v_found := v_cursor.places;
          v_more := v_found = 0 and not v_cursor.ended;
          -- Entries that it walked over in vain are not walked over again.
          if v_found = 0 and v_slice.walked > 64 then
            perform posthaste.put_claim(v_cursor, null, null, null, false);
          end if;
        else
          if not v_cursor.ended then
            f := posthaste.fresh_slice(p_queue, p_lane, v_cursor.s0, v_cursor.s1, v_cursor.last_xid, v_cursor.last_pos, v_left, live);
            v_found := f.places;
          end if;
          if v_found = 0 then
            v_cursor.s0 := v_cursor.s1;
            v_cursor.s1 := s;
            v_cursor.window_claim := null;
            f := posthaste.fresh_slice(p_queue, p_lane, v_cursor.s0, v_cursor.s1, '0', 0, v_left, live);
            v_found := f.places;
          end if;
          if v_found > 0 then
            v_cursor.part := 0;
            v_cursor.places := f.places;
            v_cursor.first_xid := f.first_xid;
            v_cursor.first_pos := f.first_pos;
            v_cursor.last_xid := f.last_xid;
            v_cursor.last_pos := f.last_pos;
            v_cursor.ended := f.places < v_left;
            v_cursor.alone := false;
            v_cursor.t0 := null;
            v_cursor.t1 := null;
          end if;
        end if;
        if v_found > 0 then
          v_cursor.keys := p_keys;
          v_cursor.expired := null;
          if p_max_age is not null or p_paused is not null then
            v_cursor.expired := posthaste.expired_places(v_cursor, p_max_age, t, p_paused);
            v_gone := coalesce(bit_count(v_cursor.expired), 0);
          end if;
          v_cursor := posthaste.put_claim(v_cursor, p_holder, p_number, p_until, p_single, p_closed);
          if v_gone > 0 then
            perform posthaste.settle_expired(v_cursor, p_closed, p_paused);
            if p_paused is not null then
              perform posthaste.set_paused_aside(v_cursor, p_paused);
            end if;
          end if;
          made := made || v_cursor;
          v_left := v_left - (v_found - v_gone);
          handed := handed + v_found - v_gone;
        end if;
      end if;
      expired := expired + v_gone;
      exit when v_gone = 0 or v_left = 0;
      v_again := true;
      if clock_timestamp() > p_stop then
        v_more := true;
        exit steps;
      end if;
    end loop;
  end loop;
  if v_more and handed = 0 then
    -- It stopped among entries that are not for it, or too old: there is more to walk over.
    next_due := t;
  end if;
end $$;
