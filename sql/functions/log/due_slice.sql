-- posthaste.due_slice: the next entries of one part of a due window.
-- Part 1: entries that became visible between the window's snapshots with a due time not
-- after its end. Part 2: entries visible before, whose due time lies between the window's
-- times. These are skipped, in bounded steps: entries of other subscriptions, withdrawn
-- entries, entries that the subscription's filter excludes, entries due later and, in part
-- 2, those of part 1.
-- One lower bound, not two: a btree scan starts at only one of them.
-- Arguments: w holds the window, the part and the key after which to continue; the maximum
-- number; whether an entry that must run alone may be handed out; the live slots.
-- Returns: w with the slice's first and last key, places, alone and ended (the part is used
-- up); the number of rows walked; whether an entry waits to run alone.
create or replace function posthaste.due_slice(p_queue int, p_subscription int, p_lane int, inout w posthaste.claims,
  p_max int, p_alone boolean, l posthaste.live, out walked int, out wants_idle boolean)
language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set enable_hashjoin = off set enable_mergejoin = off set enable_material = off set jit = off as $$
declare
  v record;
  v_lo bigint[];
  v_hi bigint[];
  v_steps int := greatest(4096, 4 * p_max);
  v_cancelled boolean := exists (select from posthaste.cancelled);
  v_subscriber bigint := w.reader >> 10;
  u posthaste.subscriptions;
  stopped boolean := false;
begin
  walked := 0;
  wants_idle := false;
  w.places := 0;
  w.alone := false;
  if w.sifted is not null then
    select x.* into u from posthaste.subscriptions x where x.queue_id = p_queue and x.number = p_subscription;
  end if;
  if w.part = 1 then
    select lo, hi into v_lo, v_hi from posthaste.window_ranges(w.s0, w.s1);
    for v in select e.xid, e.pos, e.due_at, e.for_subscription, e.losses
               from unnest(v_lo, v_hi) r (lo, hi)
              cross join lateral (
                select e.xid, e.pos, e.due_at, e.for_subscription, e.losses
                  from posthaste.entries e
                 where e.queue_id = p_queue and e.lane = p_lane and e.due_at is not null
                   and (e.xid, e.pos) > (greatest(r.lo::text::xid8, w.last_xid), case when r.lo::text::xid8 > w.last_xid then 0 else w.last_pos end)
                   and e.xid < r.hi::text::xid8
                   and posthaste.in_slots((e.pos >> 22) & 15, l.a, l.b, l.c, l.d, l.e, l.f)
                   and pg_visible_in_snapshot(e.xid, w.s1) and not pg_visible_in_snapshot(e.xid, w.s0)
                 order by e.xid, e.pos) e
              limit v_steps loop
      walked := walked + 1;
      if v.due_at <= w.t1 and (v.for_subscription is null or v.for_subscription = p_subscription)
         and not (v_cancelled and exists (select from posthaste.cancelled x where x.pos = v.pos and x.subscriber = v_subscriber))
         and (w.sifted is null or v.for_subscription is not null or posthaste.due_is_for(u, p_lane, v.xid, v.pos, v.due_at)) then
        if v.losses >= 2 then
          if w.places > 0 or not p_alone then
            -- Lost twice: the only place of its slice, with nothing else running.
            wants_idle := w.places = 0;
            stopped := true;
            exit;
          end if;
          w.alone := true;
        end if;
        if w.places = 0 then
          w.first_xid := v.xid;
          w.first_pos := v.pos;
          w.first_due := v.due_at;
        end if;
        w.places := w.places + 1;
      elsif w.sifted is not null and v.due_at <= w.t1 and v.for_subscription is null
            and not (v_cancelled and exists (select from posthaste.cancelled x where x.pos = v.pos and x.subscriber = v_subscriber))
            and (not pg_visible_in_snapshot(v.xid, u.since) or u.scheduled and v.due_at > u.created_at) then
        w.sifted := w.sifted + 1; -- by the filter
      end if;
      w.last_xid := v.xid;
      w.last_pos := v.pos;
      w.last_due := v.due_at;
      if w.places = p_max or w.alone then
        stopped := true;
        exit;
      end if;
    end loop;
  else
    -- Those that part 1 had are told apart here and not by the query: they too
    -- are walked over, a whole backlog of them, and must count.
    for v in select e.xid, e.pos, e.due_at, e.for_subscription, e.losses, pg_visible_in_snapshot(e.xid, w.s0) as before
               from posthaste.entries e
              where e.queue_id = p_queue and e.lane = p_lane and e.due_at is not null
                and (e.due_at, e.pos) > (greatest(w.t0, w.last_due), case when w.t0 >= w.last_due then 9223372036854775807 else w.last_pos end)
                and e.due_at <= w.t1
                and posthaste.in_slots((e.pos >> 22) & 15, l.a, l.b, l.c, l.d, l.e, l.f)
              order by e.due_at, e.pos
              limit v_steps loop
      walked := walked + 1;
      if v.before and (v.for_subscription is null or v.for_subscription = p_subscription)
         and not (v_cancelled and exists (select from posthaste.cancelled x where x.pos = v.pos and x.subscriber = v_subscriber))
         and (w.sifted is null or v.for_subscription is not null or posthaste.due_is_for(u, p_lane, v.xid, v.pos, v.due_at)) then
        if v.losses >= 2 then
          if w.places > 0 or not p_alone then
            -- Lost twice: the only place of its slice, with nothing else running.
            wants_idle := w.places = 0;
            stopped := true;
            exit;
          end if;
          w.alone := true;
        end if;
        if w.places = 0 then
          w.first_xid := v.xid;
          w.first_pos := v.pos;
          w.first_due := v.due_at;
        end if;
        w.places := w.places + 1;
      elsif w.sifted is not null and v.before and v.for_subscription is null
            and not (v_cancelled and exists (select from posthaste.cancelled x where x.pos = v.pos and x.subscriber = v_subscriber))
            and (not pg_visible_in_snapshot(v.xid, u.since) or u.scheduled and v.due_at > u.created_at) then
        w.sifted := w.sifted + 1; -- by the filter
      end if;
      w.last_xid := v.xid;
      w.last_pos := v.pos;
      w.last_due := v.due_at;
      if w.places = p_max or w.alone then
        stopped := true;
        exit;
      end if;
    end loop;
  end if;
  w.ended := not stopped and walked < v_steps;
end $$;
