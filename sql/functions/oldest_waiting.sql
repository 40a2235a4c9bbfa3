-- posthaste.oldest_waiting: since when the oldest message waits that a
-- subscription may hand out now: when it was sent, or fell due. Null if none.
-- By the readers' order, so that it costs a look and not a scan; a message of a
-- transaction that stayed open for long can be older than its place in it.
-- Reads: claims, entries.
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
  v_keyed boolean := (select q.keyed from posthaste.queue_settings q where q.id = p_queue);
begin
  for v_lane in 0..p_lanes - 1 loop
    v_reader := posthaste.reader_key(p_queue, p_subscription, v_lane, 0);
    c := posthaste.cursor_of(v_reader, l);
    if v_keyed then
      -- Of the log alone: what is parked may not be handed out, and events are no
      -- messages.
      select * into f from posthaste.ordered_slice(p_queue, v_lane, c.s0, c.s1, c.last_xid, c.last_pos, case when c.ended then 0 else 1 end, l);
      if cardinality(f.poss) = 0 then
        select * into f from posthaste.ordered_slice(p_queue, v_lane, c.s1, s, '0', 0, 1, l);
      end if;
      v_oldest := least(v_oldest, (select e.created_at from posthaste.entries e
        where e.queue_id = p_queue and e.lane = v_lane and e.ord is not null and e.due_at is null and e.ord = f.ords[1] and e.pos = f.poss[1]
          and ((e.pos >> 22) & 15) = (f.poss[1] >> 22) & 15));
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
