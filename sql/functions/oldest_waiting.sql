-- posthaste.oldest_waiting: since when the oldest message waits that a
-- subscription may hand out now: when it was sent, or fell due. Null if none.
-- By the readers' order, so that it costs a look and not a scan; a message of a
-- transaction that stayed open for long can be older than its place in it. Of a
-- keyed queue, of the log alone: what is parked may not be handed out, or had its
-- turn; and what is not for it there is passed over, up to 4,096 entries in a lane.
-- Reads: claims, entries, cancelled, subscriptions.
create or replace function posthaste.oldest_waiting(p_queue int, p_subscription int, p_lanes int)
returns timestamptz language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off as $$
declare
  s pg_snapshot := pg_current_snapshot();
  t timestamptz := clock_timestamp();
  l posthaste.live := posthaste.live_slots();
  c posthaste.claims;
  w posthaste.claims;
  f record;
  d record;
  v_reader bigint;
  v_oldest timestamptz;
  v_size int;
  v_left int;
  v_n int;
  v_filter jsonb := (select u.filter from posthaste.subscriptions u where u.queue_id = p_queue and u.number = p_subscription);
  v_keyed boolean := (select q.keyed from posthaste.queue_settings q where q.id = p_queue);
begin
  for v_lane in 0..p_lanes - 1 loop
    v_reader := posthaste.reader_key(p_queue, p_subscription, v_lane, 0);
    c := posthaste.cursor_of(v_reader, l);
    if v_keyed then
      v_size := 1;
      v_left := 4096;
      loop
        select * into f from posthaste.ordered_slice(p_queue, v_lane, c.s0, c.s1, c.last_xid, c.last_pos, case when c.ended then 0 else v_size end, l);
        if cardinality(f.poss) = 0 then
          exit when c.s1::text = s::text;
          c.ended := false;
          c.s0 := c.s1;
          c.s1 := s;
          c.last_xid := '0';
          c.last_pos := 0;
          continue;
        end if;
        v_left := v_left - cardinality(f.poss);
        v_n := array_position(posthaste.left_out(p_queue, v_lane, p_queue::bigint << 10 | p_subscription, v_filter, f.ords, f.poss), null);
        if v_n is null and v_left <= 0 then
          v_n := cardinality(f.poss);
        end if;
        c.last_xid := f.ords[coalesce(v_n, cardinality(f.poss))];
        c.last_pos := f.poss[coalesce(v_n, cardinality(f.poss))];
        if v_n is not null then
          v_oldest := least(v_oldest, (select e.created_at from posthaste.entries e
            where e.queue_id = p_queue and e.lane = v_lane and e.ord is not null and e.due_at is null and e.ord = c.last_xid and e.pos = c.last_pos
              and ((e.pos >> 22) & 15) = (c.last_pos >> 22) & 15));
          exit;
        end if;
        v_size := least(v_size * 16, 1024);
      end loop;
      continue;
    end if;
    if c.part = 3 then
      select (x.c).places::int as places, (x.c).first_xid, (x.c).first_pos into f from posthaste.sifted_slice(p_queue, v_lane, c, s, 1, l) x;
    else
      select * into f from posthaste.fresh_slice(p_queue, v_lane, c.s0, c.s1, c.last_xid, c.last_pos, case when c.ended then 0 else 1 end, l);
    end if;
    if c.part <> 3 and f.places = 0 then
      select * into f from posthaste.fresh_slice(p_queue, v_lane, c.s1, s, '0', 0, 1, l);
    end if;
    if f.places > 0 then
      v_oldest := least(v_oldest, (select e.created_at from posthaste.entries e
        where e.queue_id = p_queue and e.lane = v_lane and e.due_at is null and e.ord is null and e.xid = f.first_xid and e.pos = f.first_pos
          and ((e.pos >> 22) & 15) = (f.first_pos >> 22) & 15));
    end if;
    -- Most have nothing that is due later, nor had; a look tells that for a part of the cost.
    continue when not exists (select from posthaste.entries e
      where e.queue_id = p_queue and e.lane = v_lane and e.due_at is not null and posthaste.in_slots((e.pos >> 22) & 15, l.a, l.b, l.c, l.d, l.e, l.f));
    -- What is left of the present window of the due track, then the next one.
    w := posthaste.cursor_of(v_reader + 1, l);
    for v_round in 1..4 loop
      if w.ended then
        exit when w.part = 2 and w.s1::text = s::text;
        if w.part = 1 then
          w.part := 2;
        else
          w.part := 1;
          w.s0 := w.s1;
          w.s1 := s;
          w.t0 := w.t1;
          w.t1 := greatest(t, w.t1);
        end if;
        w.last_xid := '0';
        w.last_pos := 0;
        w.last_due := '-infinity';
      end if;
      d := posthaste.due_slice(p_queue, p_subscription, v_lane, w, 1, true, l);
      w := d.w;
      if w.places > 0 then
        v_oldest := least(v_oldest, w.first_due);
      end if;
      exit when w.places > 0 or not w.ended;
    end loop;
  end loop;
  return v_oldest;
end $$;
