-- posthaste.oldest_due: since when the oldest entry of a due track is due that its
-- reader has not come to: what is left of its window, then the next one.
-- Arguments: up to which snapshot; the live slots.
-- Returns: one row for each subscription and lane that has one.
-- Reads: what all_cursors and due_slice read.
create or replace function posthaste.oldest_due(s pg_snapshot, l posthaste.live)
returns table (queue_id int, subscription int, since timestamptz) language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_material = off set jit = off as $$
declare
  t timestamptz := clock_timestamp();
  c record;
  d record;
  w posthaste.claims;
begin
  -- Most lanes have nothing that fell due since their reader looked, or came in late.
  for c in select x.queue_id, x.subscription, x.lane
             from posthaste.all_cursors(1, l) x
            cross join lateral (select x.part = 2 and x.s0 is null as ended) r
            where exists (select from posthaste.entries e
                           where e.queue_id = x.queue_id and e.lane = x.lane and e.due_at is not null
                             and e.due_at > coalesce(case when r.ended then x.t1 end, '-infinity') and e.due_at <= t
                             and posthaste.in_slots((e.pos >> 22) & 15, l.a, l.b, l.c, l.d, l.e, l.f))
               or r.ended and exists (select from posthaste.entries e
                                       where e.queue_id = x.queue_id and e.lane = x.lane and e.due_at is not null and e.xid >= pg_snapshot_xmin(x.s1)
                                         and posthaste.in_slots((e.pos >> 22) & 15, l.a, l.b, l.c, l.d, l.e, l.f)) loop
    w := posthaste.cursor_of(posthaste.reader_key(c.queue_id, c.subscription, c.lane, 1), l);
    for v_round in 1..4 loop
      if w.ended then
        exit when w.part = 2 and w.s1::text = s::text;
        if w.part = 1 then
          w.part := 2;
        else
          w.part := 1;
          w.s0 := w.s1;
          w.s1 := s;
          w.t0 := w.t1;
          w.t1 := greatest(t, w.t1);
        end if;
        w.last_xid := '0';
        w.last_pos := 0;
        w.last_due := '-infinity';
      end if;
      d := posthaste.due_slice(c.queue_id, c.subscription, c.lane, w, 1, true, l);
      w := d.w;
      if w.places > 0 then
        queue_id := c.queue_id;
        subscription := c.subscription;
        since := w.first_due;
        return next;
      end if;
      exit when w.places > 0 or not w.ended;
    end loop;
  end loop;
end $$;
