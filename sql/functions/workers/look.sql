-- posthaste.look: whether a subscription has messages to hand out, without claiming any: it
-- takes no lock and writes nothing.
-- Arguments: queue, subscription, the lanes to look at.
-- Returns: ready, and next_due: seconds until the next message becomes due, if any.
-- Reads: claims, entries.
create or replace function posthaste.look(p_queue int, p_subscription int, p_lanes int[], out ready boolean, out next_due double precision)
language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off as $$
declare
  s pg_snapshot := pg_current_snapshot();
  t timestamptz := clock_timestamp();
  l posthaste.live := posthaste.live_slots();
  v_cursor posthaste.claims;
  v_due_cursor posthaste.claims;
  v_lane int;
  v_reader bigint;
  v_due timestamptz;
  v_slice record;
  v_idle boolean;
  v_keyed boolean;
  v_rated boolean;
  v_next timestamptz;
begin
  ready := false;
  select q.keyed, q.key_rate is not null into v_keyed, v_rated from posthaste.queue_settings q where q.id = p_queue;
  foreach v_lane in array p_lanes loop
    v_reader := posthaste.reader_key(p_queue, p_subscription, v_lane, 0);
    v_cursor := posthaste.cursor_of(v_reader, l);
    if v_keyed then
      v_due_cursor := posthaste.cursor_of(v_reader + 1, l);
      if not v_cursor.ended and cardinality((posthaste.ordered_slice(p_queue, v_lane, v_cursor.s0, v_cursor.s1, v_cursor.last_xid, v_cursor.last_pos, 1, l)).poss) > 0
         or cardinality((posthaste.ordered_slice(p_queue, v_lane, v_cursor.s1, s, '0', 0, 1, l)).poss) > 0
         or posthaste.has_line(v_reader >> 10, v_lane, v_due_cursor.turns)
         -- A key waits for a run to end, and one has ended.
         or exists (select from posthaste.keys z where z.subscriber = v_reader >> 10 and z.lane = v_lane and z.waits)
            and cardinality(v_due_cursor.busy) > cardinality(posthaste.lane_busy(v_due_cursor.open, s)) then
        ready := true;
        return;
      end if;
      if v_rated and greatest(v_due_cursor.t1, v_due_cursor.at) > clock_timestamp() + interval '2 seconds' then
        -- The clock was set back, as in posthaste.claim_keyed.
        v_next := posthaste.next_token(v_reader >> 10, v_lane, null);
        v_due := least(v_due, v_next);
        if v_due_cursor.at > clock_timestamp() + interval '2 seconds' or v_next <= clock_timestamp() then
          ready := true;
          return;
        end if;
      end if;
    elsif v_cursor.part = 3 then
      v_slice := posthaste.sifted_slice(p_queue, v_lane, v_cursor, s, 1, l);
      -- Also if a claim is to record that it walked over rows in vain: otherwise the next look
      -- would walk over them again.
      if (v_slice.c).places > 0 or not (v_slice.c).ended or v_slice.walked > 64 then
        ready := true;
        return;
      end if;
    elsif (not v_cursor.ended and (select places from posthaste.fresh_slice(p_queue, v_lane, v_cursor.s0, v_cursor.s1, v_cursor.last_xid, v_cursor.last_pos, 1, l)) > 0)
       or (select places from posthaste.fresh_slice(p_queue, v_lane, v_cursor.s1, s, '0', 0, 1, l)) > 0 then
      ready := true;
      return;
    end if;
    v_due_cursor := posthaste.cursor_of(v_reader + 1, l);
    select x.idle, x.next_due into v_idle, v_next from posthaste.due_idle(p_queue, v_lane, v_due_cursor, t, l) x;
    v_due := least(v_due, v_next);
    continue when v_idle;
    for v_round in 1..4 loop
      v_cursor := v_due_cursor;
      if v_cursor.ended then
        exit when v_round > 1 and v_cursor.part = 2 and v_cursor.t1 = t;
        if v_cursor.part = 1 then
          v_due_cursor.part := 2;
        else
          v_due_cursor.part := 1;
          v_due_cursor.s0 := v_cursor.s1;
          v_due_cursor.s1 := s;
          v_due_cursor.t0 := v_cursor.t1;
          v_due_cursor.t1 := greatest(t, v_cursor.t1);
          t := v_due_cursor.t1;
        end if;
        v_due_cursor.last_xid := '0';
        v_due_cursor.last_pos := 0;
        v_due_cursor.last_due := '-infinity';
      end if;
      v_slice := posthaste.due_slice(p_queue, p_subscription, v_lane, v_due_cursor, 1, true, l);
      v_due_cursor := v_slice.w;
      if v_due_cursor.places > 0 or not v_due_cursor.ended then
        ready := true;
        return;
      end if;
    end loop;
    select least(v_due, (select e.due_at
      from (select e.due_at, e.for_subscription
              from posthaste.entries e
             where e.queue_id = p_queue and e.lane = v_lane and e.due_at is not null and e.due_at > t
               and posthaste.in_slots((e.pos >> 22) & 15, l.a, l.b, l.c, l.d, l.e, l.f)
             order by e.due_at, e.pos limit 100) e
     where e.for_subscription is null or e.for_subscription = p_subscription limit 1)) into v_due;
  end loop;
  next_due := case when v_due is not null then greatest(0, extract(epoch from v_due - clock_timestamp())) end;
end $$;
