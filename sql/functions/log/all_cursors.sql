-- posthaste.all_cursors: the cursors of all readers of a track, as posthaste.cursor_of
-- returns one. It is one statement because starting one that names the partitions costs ten
-- times as much as the work for one reader.
-- Arguments: the track (0 fresh, 1 due), the live slots.
-- Returns: s0 is null where the present window is used up.
-- Reads: queue_settings, subscriptions, claims.
create or replace function posthaste.all_cursors(p_track int, l posthaste.live)
returns table (queue_id int, subscription int, lane int, subscriber bigint, keyed boolean, filter jsonb, part int, s0 pg_snapshot, s1 pg_snapshot, t1 timestamptz, last_xid xid8, last_pos bigint)
language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_material = off set jit = off as $$
begin
  return query
    select q.id, u.number::int, n, q.id::bigint << 10 | u.number, q.keyed, u.filter, c.part::int,
           case when not c.ended then coalesce(c.s0, w.s0) end, coalesce(c.s1, w.s1, u.since), c.t1, c.last_xid, c.last_pos
      from posthaste.queue_settings q
      join posthaste.subscriptions u on u.queue_id = q.id and u.dropped_at is null
     cross join generate_series(0, q.lanes - 1) n
      left join lateral (
        select c.slot, c.window_claim, c.part, c.ended, c.s0, c.s1, c.t1, c.last_xid, c.last_pos
          from posthaste.claims c
         where c.reader = posthaste.reader_key(q.id, u.number, n, p_track) and posthaste.in_slots(c.slot, l.a, l.b, l.c, l.d, l.e, l.f)
         order by c.reader, c.seq desc limit 1) c on true
      left join lateral (select w.s0, w.s1 from posthaste.claims w where w.slot = c.slot and w.id = c.window_claim order by w.slot, w.id limit 1) w on true
     where q.dropped_at is null;
end $$;
