-- posthaste.ordered_slice: the next p_max entries of a window of a keyed lane's log, by
-- (ord, pos).
-- Arguments: queue, lane, the window's snapshots, the key after which to continue (('0', 0)
-- at the window's start), the maximum number, the live slots.
-- Returns: their orders, positions and keys.
-- Entries of transactions that s0 lists as in progress come first. They are found by these
-- ids, one after the other. The others, from xmax(s0) on, are in the log's own order. So one
-- old open writer does not make a reader walk the log.
create or replace function posthaste.ordered_slice(p_queue int, p_lane int, s0 pg_snapshot, s1 pg_snapshot,
  p_ord xid8, p_pos bigint, p_max int, l posthaste.live, out ords xid8[], out poss bigint[], out keys text[])
language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_material = off set jit = off as $$
declare
  x0 xid8 := pg_snapshot_xmax(s0);
  x1 xid8 := pg_snapshot_xmax(s1);
  v_ord xid8 := case when p_ord >= x0 then p_ord else x0 end;
  v_pos bigint := case when p_ord >= x0 then p_pos else 0 end;
  v_late xid8[];
  v_left int := p_max;
  v record;
begin
  if p_ord < x0 and pg_snapshot_xmin(s0) <> x0 then
    v_late := array(select x from pg_snapshot_xip(s0) x where pg_visible_in_snapshot(x, s1));
    if cardinality(v_late) > 0 then
      select array_agg(e.ord), array_agg(e.pos), array_agg(e.key) into ords, poss, keys
        from (select e.ord, e.pos, e.key
                from unnest(v_late) r (x)
               cross join lateral (
                 (select e.ord, e.pos, e.key
                    from posthaste.entries e
                   where e.queue_id = p_queue and e.lane = p_lane and e.ord is not null and e.due_at is null and e.ord <> e.xid
                     and e.xid = r.x and (e.ord, e.pos) > (p_ord, p_pos) and e.ord < x0
                     and posthaste.in_slots((e.pos >> 22) & 15, l.a, l.b, l.c, l.d, l.e, l.f)
                   order by e.xid, e.ord, e.pos
                   limit p_max)
                 union all
                 (select e.ord, e.pos, e.key
                    from posthaste.entries e
                   where e.queue_id = p_queue and e.lane = p_lane and e.ord is not null and e.due_at is null and e.xid = r.x
                     and e.ord = r.x and e.pos > case when r.x > p_ord then 0 when r.x = p_ord then p_pos else 9223372036854775807 end
                     and posthaste.in_slots((e.pos >> 22) & 15, l.a, l.b, l.c, l.d, l.e, l.f)
                   order by e.ord, e.pos
                   limit p_max)) e
               order by e.ord, e.pos
               limit p_max) e;
      v_left := p_max - coalesce(cardinality(poss), 0);
    end if;
  end if;
  if v_left > 0 and x1 >= x0 then
    select array_agg(e.ord) as ords, array_agg(e.pos) as poss, array_agg(e.key) as keys into v
      from (select e.ord, e.pos, e.key
              from posthaste.entries e
             where e.queue_id = p_queue and e.lane = p_lane and e.ord is not null and e.due_at is null
               and (e.ord, e.pos) > (v_ord, v_pos) and e.ord <= x1
               and posthaste.in_slots((e.pos >> 22) & 15, l.a, l.b, l.c, l.d, l.e, l.f)
               and pg_visible_in_snapshot(e.xid, s1) and not pg_visible_in_snapshot(e.xid, s0)
             order by e.ord, e.pos
             limit v_left) e;
    ords := ords || v.ords;
    poss := poss || v.poss;
    keys := keys || v.keys;
  end if;
  ords := coalesce(ords, '{}');
  poss := coalesce(poss, '{}');
  keys := coalesce(keys, '{}');
end $$;
