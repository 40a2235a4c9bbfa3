-- posthaste.count_kept: the number of kept messages that a new subscription will read,
-- counted once, when it is created. Reads: entries, cancelled.
create or replace function posthaste.count_kept(u posthaste.subscriptions)
returns bigint language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
  v_lanes int := (select q.lanes from posthaste.queue_settings q where q.id = u.queue_id);
  l posthaste.live := posthaste.live_slots();
  s pg_snapshot := (select c.s from posthaste.counted c);
  v_fresh bigint := 0;
  v_due bigint;
begin
  if u.starts = 'oldest' then
    select count(*) into v_fresh from generate_series(0, v_lanes - 1) g cross join lateral (
      select from posthaste.entries e
       where e.queue_id = u.queue_id and e.lane = g and e.plain and pg_visible_in_snapshot(e.xid, s) and not pg_visible_in_snapshot(e.xid, u.since)
         and posthaste.in_slots((e.pos >> 22) & 15, l.a, l.b, l.c, l.d, l.e, l.f)
      union all
      select from posthaste.entries e
       where e.queue_id = u.queue_id and e.lane = g and e.ord is not null and e.due_at is null and pg_visible_in_snapshot(e.xid, s) and not pg_visible_in_snapshot(e.xid, u.since)
         and posthaste.in_slots((e.pos >> 22) & 15, l.a, l.b, l.c, l.d, l.e, l.f)) x;
  end if;
  select count(*) into v_due from generate_series(0, v_lanes - 1) g cross join lateral (
    select from posthaste.entries e
     where e.queue_id = u.queue_id and e.lane = g and e.due_at is not null and e.for_subscription is null and pg_visible_in_snapshot(e.xid, s)
       and (not pg_visible_in_snapshot(e.xid, u.since) or u.scheduled and e.due_at > u.created_at)
       and posthaste.in_slots((e.pos >> 22) & 15, l.a, l.b, l.c, l.d, l.e, l.f)
       -- Not exists, which may become a join that compares each with all.
       and (select x.outcome from posthaste.cancelled x where x.pos = e.pos and x.subscriber = (u.queue_id::bigint << 10 | u.number) order by x.pos, x.subscriber limit 1) is distinct from 'carried') x;
  return v_fresh + v_due - (select count(*) from posthaste.cancelled x where x.subscriber = (u.queue_id::bigint << 10 | u.number)
                               and x.xid is not null and x.outcome = 'carried' and not pg_visible_in_snapshot(x.xid, u.since));
end $$;
