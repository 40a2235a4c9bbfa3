-- posthaste.oldest_due: for each due track the time since which the oldest entry is due that
-- its reader has not reached: in the rest of its window, then in the next one.
-- Arguments: the snapshot up to which to look; the live slots.
-- Returns: one row for each subscription and lane that has such an entry. Lanes of paused kinds
-- have none that may be handed out.
-- Reads: the tables of all_cursors and due_slice.
create or replace function posthaste.oldest_due(s pg_snapshot, l posthaste.live)
returns table (queue_id int, subscription int, since timestamptz) language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_material = off set jit = off as $$
declare
  t timestamptz := clock_timestamp();
  v_lane record;
  v_slice record;
begin
  -- Most lanes have no entry that became due, or committed late, since their reader looked.
  for v_lane in select x.queue_id, x.subscription, x.lane
             from posthaste.all_cursors(1, l) x
            cross join lateral (select x.part = 2 and x.s0 is null as ended) r
            where not exists (select from posthaste.queue_settings q
                               where q.id = x.queue_id and q.kinds_paused is not null and q.kind_lanes[x.lane - 4 * q.width + 1] = any (q.kinds_paused))
              and (exists (select from posthaste.entries e
                           where e.queue_id = x.queue_id and e.lane = x.lane and e.due_at is not null
                             and e.due_at > coalesce(case when r.ended then x.t1 end, '-infinity') and e.due_at <= t
                             and posthaste.in_slots((e.pos >> 22) & 15, l.a, l.b, l.c, l.d, l.e, l.f))
               or r.ended and exists (select from posthaste.entries e
                                       where e.queue_id = x.queue_id and e.lane = x.lane and e.due_at is not null and e.xid >= pg_snapshot_xmin(x.s1)
                                         and posthaste.in_slots((e.pos >> 22) & 15, l.a, l.b, l.c, l.d, l.e, l.f))) loop
    v_slice := posthaste.ready_due(v_lane.queue_id, v_lane.subscription, v_lane.lane, 1, s, l);
    if v_slice.places > 0 then
      queue_id := v_lane.queue_id;
      subscription := v_lane.subscription;
      since := v_slice.since;
      return next;
    end if;
  end loop;
end $$;
