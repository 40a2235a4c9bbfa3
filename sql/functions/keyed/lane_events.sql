-- posthaste.lane_events: the events of a keyed lane since its cursor of events. The due track
-- of such a lane has no messages to hand out. It has events, which settles, operators and
-- claims append, and scheduled messages, which are parked at their time.
-- An event is an entry with attempt 0 whose story lists objects:
--   key         look at this key
--   ord, id     and this message of it came back: it is parked; token: it gives its token back
--   stop        a message that stops the key; go: it does not stop it any more
-- Arguments: queue, subscription, lane; the cursor; the snapshot and the time up to which to
-- read; the live slots.
-- Returns: the new cursor; the events' objects in order; the scheduled messages' keys; the
-- number of rows walked; whether all was read: a call walks over at most 16,384 rows.
create or replace function posthaste.lane_events(p_queue int, p_subscription int, p_lane int, inout w posthaste.claims,
  s pg_snapshot, t timestamptz, l posthaste.live, out events jsonb, out xids xid8[], out poss bigint[], out walked int, out complete boolean)
language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set enable_hashjoin = off set enable_mergejoin = off set enable_material = off set jit = off as $$
declare
  v record;
  v_lo bigint[];
  v_hi bigint[];
  v_before int;
  v_new boolean := false;
  v_stories jsonb[] := '{}';
begin
  xids := '{}';
  poss := '{}';
  walked := 0;
  complete := false;
  loop
    if w.ended then
      if w.part = 1 then
        w.part := 2;
      else
        if v_new then
          complete := true;
          exit;
        end if;
        w.part := 1;
        w.s0 := w.s1;
        w.s1 := s;
        w.t0 := w.t1;
        w.t1 := t;
        w.window_claim := null;
        v_new := true;
      end if;
      w.last_xid := '0';
      w.last_pos := 0;
      w.last_due := '-infinity';
    end if;
    v_before := walked;
    if w.part = 1 then
      select lo, hi into v_lo, v_hi from posthaste.window_ranges(w.s0, w.s1);
      for v in select e.xid, e.pos, e.due_at, e.for_subscription, e.attempt, e.story
                 from unnest(v_lo, v_hi) r (lo, hi)
                cross join lateral (
                  select e.xid, e.pos, e.due_at, e.for_subscription, e.attempt, e.story
                    from posthaste.entries e
                   where e.queue_id = p_queue and e.lane = p_lane and e.due_at is not null
                     and (e.xid, e.pos) > (greatest(r.lo::text::xid8, w.last_xid), case when r.lo::text::xid8 > w.last_xid then 0 else w.last_pos end)
                     and e.xid < r.hi::text::xid8
                     and posthaste.in_slots((e.pos >> 22) & 15, l.a, l.b, l.c, l.d, l.e, l.f)
                     and pg_visible_in_snapshot(e.xid, w.s1) and not pg_visible_in_snapshot(e.xid, w.s0)
                   order by e.xid, e.pos) e
                limit 4096 loop
        walked := walked + 1;
        w.last_xid := v.xid;
        w.last_pos := v.pos;
        w.last_due := v.due_at;
        continue when v.due_at > w.t1 or v.for_subscription <> p_subscription
          or exists (select from posthaste.cancelled x where x.pos = v.pos and x.subscriber = w.reader >> 10);
        if v.attempt = 0 then
          v_stories := v_stories || v.story;
        else
          xids := xids || v.xid;
          poss := poss || v.pos;
        end if;
      end loop;
    else
      for v in select e.xid, e.pos, e.due_at, e.for_subscription, e.attempt, e.story, pg_visible_in_snapshot(e.xid, w.s0) as before
                 from posthaste.entries e
                where e.queue_id = p_queue and e.lane = p_lane and e.due_at is not null
                  and (e.due_at, e.pos) > (greatest(w.t0, w.last_due), case when w.t0 >= w.last_due then 9223372036854775807 else w.last_pos end)
                  and e.due_at <= w.t1
                  and posthaste.in_slots((e.pos >> 22) & 15, l.a, l.b, l.c, l.d, l.e, l.f)
                order by e.due_at, e.pos
                limit 4096 loop
        walked := walked + 1;
        w.last_xid := v.xid;
        w.last_pos := v.pos;
        w.last_due := v.due_at;
        continue when not v.before or v.for_subscription <> p_subscription
          or exists (select from posthaste.cancelled x where x.pos = v.pos and x.subscriber = w.reader >> 10);
        if v.attempt = 0 then
          v_stories := v_stories || v.story;
        else
          xids := xids || v.xid;
          poss := poss || v.pos;
        end if;
      end loop;
    end if;
    w.ended := walked - v_before < 4096;
    exit when walked >= 16384;
  end loop;
  -- Built at once: adding to a jsonb copies all of it.
  events := coalesce((select jsonb_agg(o.object order by s.i, o.i)
                        from unnest(v_stories) with ordinality s (story, i) cross join lateral jsonb_array_elements(s.story) with ordinality o (object, i)), '[]');
end $$;
