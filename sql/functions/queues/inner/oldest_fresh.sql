-- posthaste.oldest_fresh: when the oldest message without a due time was sent that a reader
-- has not reached: in the rest of its window, then in the next one.
-- Arguments: the snapshot up to which to look; the live slots.
-- Returns: one row for each subscription and lane that has such a message.
-- It uses the readers' order; a message of a long transaction can be older than its place in
-- it. Withdrawn messages are skipped. After 1,024 withdrawn messages in a row, or 16 that do
-- not pass the filter, the last of these is returned. In a keyed queue it reads the log alone:
-- parked messages may not be handed out yet, or had their turn.
-- Reads: the tables of all_cursors, entries, cancelled.
create or replace function posthaste.oldest_fresh(s pg_snapshot, l posthaste.live)
returns table (queue_id int, subscription int, since timestamptz) language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_material = off set jit = off as $$
begin
  return query
    select c.queue_id, c.subscription, o.created_at
      from posthaste.all_cursors(0, l) c
     cross join lateral (
       select e.created_at
         from (select e.created_at, e.kind, e.headers, e.k, row_number() over () as n
                 from (values (c.s0, c.s1, c.last_xid, c.last_pos), (c.s1, s, '0', 0)) w (s0, s1, last_xid, last_pos)
                -- Those that the window's first snapshot lists as in progress, then all that began
                -- later: an old open writer does not make this walk the log.
                cross join lateral (
                  select x as lo, x as hi from pg_snapshot_xip(w.s0) x where pg_visible_in_snapshot(x, w.s1)
                  union all select pg_snapshot_xmax(w.s0), pg_snapshot_xmax(w.s1)) r
                cross join lateral (
                  (select e.created_at, e.pos, e.kind, e.headers, row_number() over (order by e.xid, e.pos) as k
                     from posthaste.entries e
                    where not c.keyed and e.queue_id = c.queue_id and e.lane = c.lane and e.plain
                      and (e.xid, e.pos) > (greatest(r.lo, w.last_xid), case when r.lo > w.last_xid then 0 else w.last_pos end) and e.xid <= r.hi
                      and posthaste.in_slots((e.pos >> 22) & 15, l.a, l.b, l.c, l.d, l.e, l.f)
                    order by e.xid, e.pos limit 1024)
                  union all
                  (select e.created_at, e.pos, e.kind, e.headers, row_number() over (order by e.ord, e.pos) as k
                     from posthaste.entries e
                    where c.keyed and e.queue_id = c.queue_id and e.lane = c.lane and e.due_at is null and e.ord is not null
                      and (e.ord, e.pos) > (greatest(r.lo, w.last_xid), case when r.lo > w.last_xid then 0 else w.last_pos end) and e.ord <= r.hi
                      and posthaste.in_slots((e.pos >> 22) & 15, l.a, l.b, l.c, l.d, l.e, l.f)
                      and not pg_visible_in_snapshot(e.xid, w.s0)
                    order by e.ord, e.pos limit 1024)
                  union all
                  (select e.created_at, e.pos, e.kind, e.headers, row_number() over (order by e.xid, e.ord, e.pos) as k
                     from posthaste.entries e
                    where c.keyed and r.lo = r.hi and e.queue_id = c.queue_id and e.lane = c.lane and e.due_at is null and e.ord is not null and e.ord <> e.xid
                      and e.xid = r.lo and (e.ord, e.pos) > (w.last_xid, w.last_pos) and e.ord < pg_snapshot_xmax(w.s0)
                      and posthaste.in_slots((e.pos >> 22) & 15, l.a, l.b, l.c, l.d, l.e, l.f)
                    order by e.xid, e.ord, e.pos limit 1024)) e
                where e.k = 1024 or not exists (select from posthaste.cancelled y where y.pos = e.pos and y.subscriber = c.subscriber)
                limit 16) e
        where c.filter is null or e.n = 16 or e.k = 1024 or posthaste.passes(c.filter, e.kind, e.headers)
        limit 1) o;
end $$;
