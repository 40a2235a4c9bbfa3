-- posthaste.sifted_slice: the next entries of a fresh track whose reader sifts, because its
-- subscription has a filter or entries ahead of it were withdrawn. Entries that it skips are
-- walked in bounded steps, and have no place.
-- A reader sifts while its cursor's part is 3. It stops by itself when neither the rest of
-- its window nor a later one has an entry to skip.
-- Arguments: c, the cursor; the snapshot up to which a new window may be opened; the maximum
-- number; the live slots. If the result must stay valid, call it under the reader's lock.
-- Returns: c as the claim to write: its window, the slice's first and last key, places,
-- ended, part (3, or 0 if it does not sift any more); the number of rows walked over or
-- taken.
create or replace function posthaste.sifted_slice(p_queue int, p_lane int, inout c posthaste.claims, s pg_snapshot, p_max int, l posthaste.live, out walked int)
language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set enable_hashjoin = off set enable_mergejoin = off set enable_material = off set jit = off as $$
declare
  v_subscriber bigint := c.reader >> 10;
  v_filter jsonb;
  v_withdrawn boolean := exists (select from posthaste.cancelled x where x.subscriber = c.reader >> 10 and x.xid is not null);
  v_steps int := greatest(4096, 4 * p_max);
  v_lo bigint[];
  v_hi bigint[];
  v_new boolean := false;
  v_stopped boolean := false;
  v record;
begin
  walked := 0;
  c.places := 0;
  c.alone := false;
  c.t0 := null;
  c.t1 := null;
  c.first_xid := null;
  c.first_pos := null;
  select x.filter into v_filter from posthaste.subscriptions x where x.queue_id = p_queue and x.number = v_subscriber & 1023;
  loop
    if not c.ended and v_filter is null
       -- Ahead in this window, and in later ones; entries behind the cursor are not read again.
       and not exists (select from posthaste.cancelled x
                        where x.subscriber = v_subscriber and x.xid >= greatest(c.last_xid, pg_snapshot_xmin(c.s0)) and (x.xid, x.pos) > (c.last_xid, c.last_pos)
                          and not pg_visible_in_snapshot(x.xid, c.s0))
       and not exists (select from posthaste.cancelled x
                        where x.subscriber = v_subscriber and x.xid >= pg_snapshot_xmin(c.s1) and not pg_visible_in_snapshot(x.xid, c.s1)) then
      -- The cursor is past all withdrawn entries: millions may follow in this window.
      select f.places, f.first_xid, f.first_pos, f.last_xid, f.last_pos into v
        from posthaste.fresh_slice(p_queue, p_lane, c.s0, c.s1, c.last_xid, c.last_pos, p_max, l) f;
      c.ended := v.places < p_max;
      if v.places > 0 then
        c.part := 0;
        c.places := v.places;
        c.first_xid := v.first_xid;
        c.first_pos := v.first_pos;
        c.last_xid := v.last_xid;
        c.last_pos := v.last_pos;
        return;
      end if;
    end if;
    if c.ended then
      exit when v_new;
      v_new := true;
      c.s0 := c.s1;
      c.s1 := s;
      c.window_claim := null;
      c.last_xid := '0';
      c.last_pos := 0;
      if v_filter is null
         and not exists (select from posthaste.cancelled x
                          where x.subscriber = v_subscriber and x.xid >= pg_snapshot_xmin(c.s0) and not pg_visible_in_snapshot(x.xid, c.s0)) then
        -- The cursor is past all withdrawn entries.
        select 0, f.places, f.first_xid, f.first_pos, f.last_xid, f.last_pos into c.part, c.places, c.first_xid, c.first_pos, c.last_xid, c.last_pos
          from posthaste.fresh_slice(p_queue, p_lane, c.s0, c.s1, '0', 0, p_max, l) f;
        c.ended := c.places < p_max;
        return;
      end if;
    end if;
    select x.lo, x.hi into v_lo, v_hi from posthaste.window_ranges(c.s0, c.s1) x;
    -- The ranges are an optimization, as in posthaste.fresh_slice.
    for v in select e.xid, e.pos, e.kind, e.headers
               from unnest(v_lo, v_hi) r (lo, hi)
              cross join lateral (
                select e.xid, e.pos, e.kind, e.headers
                  from posthaste.entries e
                 where e.queue_id = p_queue and e.lane = p_lane and e.plain
                   and (e.xid, e.pos) > (greatest(r.lo::text::xid8, c.last_xid), case when r.lo::text::xid8 > c.last_xid then 0 else c.last_pos end)
                   and e.xid < r.hi::text::xid8
                   and posthaste.in_slots((e.pos >> 22) & 15, l.a, l.b, l.c, l.d, l.e, l.f)
                   and pg_visible_in_snapshot(e.xid, c.s1) and not pg_visible_in_snapshot(e.xid, c.s0)
                 order by e.xid, e.pos) e
              limit v_steps - walked loop
      walked := walked + 1;
      if not (v_withdrawn and exists (select from posthaste.cancelled x where x.pos = v.pos and x.subscriber = v_subscriber)) then
        if posthaste.passes(v_filter, v.kind, v.headers) then
          if c.places = 0 then
            c.first_xid := v.xid;
            c.first_pos := v.pos;
          end if;
          c.places := c.places + 1;
        else
          c.sifted := coalesce(c.sifted, 0) + 1;
        end if;
      end if;
      c.last_xid := v.xid;
      c.last_pos := v.pos;
      v_stopped := c.places = p_max;
      exit when v_stopped;
    end loop;
    c.ended := not v_stopped and walked < v_steps;
    exit when c.places > 0 or not c.ended;
  end loop;
end $$;
