-- posthaste.sift_keyed: posthaste.sift_on of the log of a keyed lane: moves its reader
-- forward to the next entry that its subscription's filter does not exclude, in bounded steps.
-- Arguments: the reader's cursor, the subscription's filter, the live slots.
-- Returns: whether it moved so far that continuing at once is useful. Called under the reader's
-- lock. Inserts: claims.
create or replace function posthaste.sift_keyed(c posthaste.claims, p_filter jsonb, l posthaste.live)
returns boolean language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  v_queue int := c.reader >> 20;
  v_lane int := (c.reader >> 1) & 511;
  s pg_snapshot := posthaste.snapshot_now();
  f record;
  n int;
  v_out text[];
  v_passed int;
  v_moved int := 0;
begin
  for v_round in 1..16 loop
    n := 0;
    if not c.ended then
      f := posthaste.ordered_slice(v_queue, v_lane, c.s0, c.s1, c.last_xid, c.last_pos, 4096, l);
      n := cardinality(f.poss);
    end if;
    if n = 0 then
      c.s0 := c.s1;
      c.s1 := s;
      c.window_claim := null;
      c.last_xid := '0';
      c.last_pos := 0;
      c.ended := false;
      f := posthaste.ordered_slice(v_queue, v_lane, c.s0, c.s1, '0', 0, 4096, l);
      n := cardinality(f.poss);
    end if;
    if n = 0 then
      c.ended := true;
      exit;
    end if;
    v_out := posthaste.left_out(v_queue, v_lane, c.reader >> 10, p_filter, f.ords, f.poss);
    v_passed := coalesce(array_position(v_out, null) - 1, n);
    exit when v_passed = 0;
    c.part := 4;
    c.last_xid := f.ords[v_passed];
    c.last_pos := f.poss[v_passed];
    c.ended := v_passed = n and n < 4096;
    c.sifted := c.sifted + cardinality(array_positions(v_out[:v_passed], 'filtered'));
    v_moved := v_moved + v_passed;
    exit when v_passed < n;
  end loop;
  if v_moved > 0 then
    perform posthaste.put_claim(posthaste.without_places(c), null, null, null, false);
  end if;
  return v_moved > 64;
end $$;
