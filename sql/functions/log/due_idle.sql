-- posthaste.due_idle: whether a due track certainly has nothing to hand out. Two index probes
-- replace the walk of its window: no entry became visible since the cursor's snapshot, and
-- none that was visible has become due since.
-- Arguments: queue, lane, the cursor, the time of the look, the live slots.
-- Returns: idle (false: walk the window), and when the next entry becomes due.
create or replace function posthaste.due_idle(p_queue int, p_lane int, w posthaste.claims, t timestamptz, l posthaste.live,
  out idle boolean, out next_due timestamptz)
language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off as $$
begin
  idle := false;
  if w.ended and w.part = 2 then
    -- Not exists, which leaves the choice of the index to the planner: the order by
    -- selects the index that starts at this id.
    select (select e.pos from posthaste.entries e
              where e.queue_id = p_queue and e.lane = p_lane and e.due_at is not null and e.xid >= pg_snapshot_xmin(w.s1)
                and posthaste.in_slots((e.pos >> 22) & 15, l.a, l.b, l.c, l.d, l.e, l.f)
              order by e.xid, e.pos limit 1) is null,
           (select e.due_at from posthaste.entries e
             where e.queue_id = p_queue and e.lane = p_lane and e.due_at is not null and e.due_at > w.t1
               and posthaste.in_slots((e.pos >> 22) & 15, l.a, l.b, l.c, l.d, l.e, l.f)
             order by e.due_at, e.pos limit 1)
      into idle, next_due;
    idle := idle and (next_due is null or next_due > t);
  end if;
end $$;
