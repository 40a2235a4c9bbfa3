-- posthaste.fresh_slice: the next p_max entries of a fresh window.
-- Arguments: queue, lane, the window's snapshots, the key after which to continue ((0, 0) at
-- the window's start), the maximum number, the live slots.
-- Returns: the number of entries, and the keys of the first and the last.
-- The ranges are exactly the window: checking for each row whether the snapshots see it would
-- cost a fifth of reading the row. One lower bound, not two: a btree scan starts at only one
-- of them.
create or replace function posthaste.fresh_slice(p_queue int, p_lane int, s0 pg_snapshot, s1 pg_snapshot,
  p_xid xid8, p_pos bigint, p_max int, l posthaste.live,
  out places int, out first_xid xid8, out first_pos bigint, out last_xid xid8, out last_pos bigint)
language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set enable_hashjoin = off set enable_mergejoin = off set enable_material = off set jit = off as $$
declare
  v_window record;
  v_lo bigint[];
  v_hi bigint[];
  v_xids xid8[];
  v_poss bigint[];
begin
  v_window := posthaste.window_ranges(s0, s1);
  v_lo := v_window.lo;
  v_hi := v_window.hi;
  places := 0;
  if cardinality(v_lo) = 0 or v_hi[cardinality(v_hi)] <= p_xid::text::bigint then
    return;
  end if;
  select array_agg(x.xid), array_agg(x.pos) into v_xids, v_poss
    from (select e.xid, e.pos
            from unnest(v_lo, v_hi) r (lo, hi)
           cross join lateral (
             select e.xid, e.pos
               from posthaste.entries e
              where e.queue_id = p_queue and e.lane = p_lane and e.plain
                and (e.xid, e.pos) > (greatest(r.lo::text::xid8, p_xid), case when r.lo::text::xid8 > p_xid then 0 else p_pos end)
                and e.xid < r.hi::text::xid8
                and posthaste.in_slots((e.pos >> 22) & 15, l.a, l.b, l.c, l.d, l.e, l.f)
              order by e.xid, e.pos
              limit p_max) e
           limit p_max) x;
  if v_poss is not null then
    places := cardinality(v_poss);
    first_xid := v_xids[1];
    first_pos := v_poss[1];
    last_xid := v_xids[places];
    last_pos := v_poss[places];
  end if;
end $$;
