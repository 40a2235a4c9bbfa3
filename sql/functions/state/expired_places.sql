-- posthaste.expired_places: the places of a new claim's slice whose messages are too old to be
-- handed out, or of paused kinds.
-- Arguments: the claim before it is written; its queue's max_age, or null; the time; the paused
-- kinds, or null.
-- Returns: as the column expired of claims. Reads: entries.
create or replace function posthaste.expired_places(c posthaste.claims, p_max_age interval, t timestamptz, p_paused text[] default null)
returns bit varying language plpgsql stable
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set enable_hashjoin = off set enable_mergejoin = off set enable_material = off set jit = off as $$
declare
  l posthaste.live := posthaste.live_slots();
  v_bits bit varying;
  v_place int;
begin
  c.id := coalesce(c.id, 0); -- which is in the numbers of deliveries
  -- The cheapest way for each part. Fresh entries have no time of their own to expire, and the
  -- slice is read as posthaste.fetch reads it, without payloads.
  for v_place in
    select (u.n - 1)::int
      from posthaste.window_ranges(c.s0, c.s1) w
     cross join lateral (
       select x.created_at, x.kind, row_number() over () as n
         from (select e.created_at, e.kind
                 from unnest(w.lo, w.hi) r (lo, hi)
                cross join lateral (
                  select e.created_at, e.kind
                    from posthaste.entries e
                   where e.queue_id = (c.reader >> 20)::int and e.lane = (c.reader >> 1) & 511 and e.plain
                     and (e.xid, e.pos) >= (greatest(r.lo::text::xid8, c.first_xid), case when r.lo::text::xid8 > c.first_xid then 0 else c.first_pos end)
                     and e.xid < r.hi::text::xid8 and (e.xid, e.pos) <= (c.last_xid, c.last_pos)
                     and posthaste.in_slots((e.pos >> 22) & 15, l.a, l.b, l.c, l.d, l.e, l.f)
                   order by e.xid, e.pos) e
                where r.hi > c.first_xid::text::bigint and r.lo <= c.last_xid::text::bigint
                limit c.places) x) u
     where c.part = 0 and (posthaste.too_old(u.created_at, null, p_max_age, t) or u.kind = any (p_paused))
    union all
    select d.place from posthaste.deliveries_of(c) d where c.part = 3 and (posthaste.too_old(d.created_at, null, p_max_age, t) or d.kind = any (p_paused))
    union all
    select d.place from posthaste.deliveries_at(c, array(select generate_series(0, c.places - 1))) d
     where c.part in (1, 2) and (posthaste.too_old(d.created_at, d.ages_from, p_max_age, t) or d.kind = any (p_paused))
    union all
    select d.place from posthaste.keyed_rows(c, l) d where c.part >= 4 and posthaste.too_old(d.created_at, d.ages_from, p_max_age, t)
  loop
    v_bits := set_bit(coalesce(v_bits, repeat('0', c.places)::bit varying), v_place, 1);
  end loop;
  return v_bits;
end $$;
