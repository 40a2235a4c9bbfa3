-- posthaste.oldest_due: for each due track the time since which the oldest entry is due that
-- its reader has not reached: in the rest of its window, then in the next one.
-- Arguments: the snapshot up to which to look; the live slots.
-- Returns: one row for each subscription and lane that has such an entry.
-- Reads: the tables of all_cursors and due_slice.
create or replace function posthaste.oldest_due(s pg_snapshot, l posthaste.live)
returns table (queue_id int, subscription int, since timestamptz) language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_material = off set jit = off as $$
declare
  t timestamptz := clock_timestamp();
  v_lane record;
  v_slice record;
  v_cursor posthaste.claims;
begin
  -- Most lanes have no entry that became due, or committed late, since their reader looked.
  for v_lane in select x.queue_id, x.subscription, x.lane
             from posthaste.all_cursors(1, l) x
            cross join lateral (select x.part = 2 and x.s0 is null as ended) r
            where exists (select from posthaste.entries e
                           where e.queue_id = x.queue_id and e.lane = x.lane and e.due_at is not null
                             and e.due_at > coalesce(case when r.ended then x.t1 end, '-infinity') and e.due_at <= t
                             and posthaste.in_slots((e.pos >> 22) & 15, l.a, l.b, l.c, l.d, l.e, l.f))
               or r.ended and exists (select from posthaste.entries e
                                       where e.queue_id = x.queue_id and e.lane = x.lane and e.due_at is not null and e.xid >= pg_snapshot_xmin(x.s1)
                                         and posthaste.in_slots((e.pos >> 22) & 15, l.a, l.b, l.c, l.d, l.e, l.f)) loop
    v_cursor := posthaste.cursor_of(posthaste.reader_key(v_lane.queue_id, v_lane.subscription, v_lane.lane, 1), l);
    for v_round in 1..4 loop
      if v_cursor.ended then
        exit when v_cursor.part = 2 and v_cursor.s1::text = s::text;
        if v_cursor.part = 1 then
          v_cursor.part := 2;
        else
          v_cursor.part := 1;
          v_cursor.s0 := v_cursor.s1;
          v_cursor.s1 := s;
          v_cursor.t0 := v_cursor.t1;
          v_cursor.t1 := greatest(t, v_cursor.t1);
        end if;
        v_cursor.last_xid := '0';
        v_cursor.last_pos := 0;
        v_cursor.last_due := '-infinity';
      end if;
      v_slice := posthaste.due_slice(v_lane.queue_id, v_lane.subscription, v_lane.lane, v_cursor, 1, true, l);
      v_cursor := v_slice.w;
      if v_cursor.places > 0 then
        queue_id := v_lane.queue_id;
        subscription := v_lane.subscription;
        since := v_cursor.first_due;
        return next;
      end if;
      exit when v_cursor.places > 0 or not v_cursor.ended;
    end loop;
  end loop;
end $$;
