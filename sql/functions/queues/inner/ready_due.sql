-- posthaste.ready_due: the entries of one due track that its reader has not reached and may hand
-- out: in the rest of its window, then in the next one.
-- Arguments: queue, subscription, lane; the maximum number to count; the snapshot up to which
-- to look; the live slots.
-- Returns: places, how many it counted; since, when the first of them fell due.
-- Reads: the tables of due_slice.
create or replace function posthaste.ready_due(p_queue int, p_subscription int, p_lane int, p_max int, s pg_snapshot, l posthaste.live,
  out places bigint, out since timestamptz)
language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_material = off set jit = off as $$
declare
  t timestamptz := clock_timestamp();
  v_slice record;
  v_cursor posthaste.claims := posthaste.cursor_of(posthaste.reader_key(p_queue, p_subscription, p_lane, 1), l);
begin
  places := 0;
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
    v_slice := posthaste.due_slice(p_queue, p_subscription, p_lane, v_cursor, (p_max - places)::int, true, l);
    v_cursor := v_slice.w;
    places := places + v_cursor.places;
    if v_cursor.places > 0 then
      since := least(since, v_cursor.first_due);
    end if;
    exit when places >= p_max or not v_cursor.ended;
  end loop;
end $$;
