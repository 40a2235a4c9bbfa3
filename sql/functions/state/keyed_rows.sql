-- posthaste.keyed_rows: the entries of a claim's slice in a keyed queue, in order, without
-- those that were withheld when the claim was made.
-- Part 4: a slice of the log, by (ord, pos) as posthaste.ordered_slice reads it.
-- Part 5: entries that the claim itself appended when it released parked messages, by its
-- transaction's id.
-- A slice ends with a place that was handed out, so that a missing row shows in the number
-- of rows.
-- Arguments: the claim with its snapshots, the live slots. Reads: entries.
create or replace function posthaste.keyed_rows(c posthaste.claims, l posthaste.live)
returns table (place int, pos bigint, message_id bigint, created_at timestamptz, due_at timestamptz,
  attempt smallint, failures smallint, losses smallint, losses_alone smallint,
  content_type text, key text, kind text, reference text, headers jsonb, terms text[], trace text, story jsonb, payload bytea, ord xid8, ages_from timestamptz)
language plpgsql stable rows 1000
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_material = off set jit = off as $$
#variable_conflict use_column
declare
  v_queue int := c.reader >> 20;
  v_lane int := (c.reader >> 1) & 511;
  x0 xid8 := pg_snapshot_xmax(c.s0);
  v_ord xid8 := case when c.first_xid >= x0 then c.first_xid else x0 end;
  v_pos bigint := case when c.first_xid >= x0 then c.first_pos else 0 end;
  v_late xid8[] := '{}';
begin
  if c.part = 5 then
    -- Appended after the live slots of the claim were read.
    if c.first_pos >> 22 = c.last_pos >> 22 then
      l := row((c.first_pos >> 22) & 15, (c.first_pos >> 22) & 15, 1, 0, 1, 0)::posthaste.live;
    else
      l := posthaste.live_slots();
    end if;
    return query
      select (row_number() over ())::int - 1, e.pos, e.message_id, e.created_at, e.due_at, e.attempt, e.failures, e.losses, e.losses_alone,
             e.content_type, e.key, e.kind, e.reference, e.headers, e.terms, e.trace, e.story, e.payload, e.ord, e.ages_from
        from (select * from posthaste.entries e
               where e.queue_id = v_queue and e.lane = v_lane and e.due_at is not null
                 and e.xid = c.first_xid and e.pos >= c.first_pos and e.pos <= c.last_pos
                 and posthaste.in_slots((e.pos >> 22) & 15, l.a, l.b, l.c, l.d, l.e, l.f)
               order by e.xid, e.pos) e;
    return;
  end if;
  if c.first_xid < x0 and pg_snapshot_xmin(c.s0) <> x0 then
    v_late := array(select x from pg_snapshot_xip(c.s0) x where pg_visible_in_snapshot(x, c.s1));
  end if;
  return query
    select n.place, n.pos, coalesce(n.message_id, n.pos), n.created_at, n.due_at, n.attempt, n.failures, n.losses, n.losses_alone,
           n.content_type, n.key, n.kind, n.reference, n.headers, n.terms, n.trace, n.story, n.payload, n.ord, n.ages_from
      from (select (row_number() over ())::int - 1 as place, u.*
              from (select * from (
                      select e.* from unnest(v_late) r (x)
                       cross join lateral (
                         (select * from posthaste.entries e
                           where e.queue_id = v_queue and e.lane = v_lane and e.ord is not null and e.due_at is null and e.ord <> e.xid
                             and e.xid = r.x and (e.ord, e.pos) >= (c.first_xid, c.first_pos) and e.ord < x0
                             and (e.ord, e.pos) <= (c.last_xid, c.last_pos)
                             and posthaste.in_slots((e.pos >> 22) & 15, l.a, l.b, l.c, l.d, l.e, l.f)
                           order by e.xid, e.ord, e.pos limit c.places)
                         union all
                         (select * from posthaste.entries e
                           where e.queue_id = v_queue and e.lane = v_lane and e.ord is not null and e.due_at is null and e.xid = r.x
                             and e.ord = r.x and e.pos >= case when r.x > c.first_xid then 0 when r.x = c.first_xid then c.first_pos else 9223372036854775807 end
                             and (e.ord, e.pos) <= (c.last_xid, c.last_pos)
                             and posthaste.in_slots((e.pos >> 22) & 15, l.a, l.b, l.c, l.d, l.e, l.f)
                           order by e.ord, e.pos limit c.places)) e
                       order by e.ord, e.pos limit c.places) late
                    union all
                    select * from (
                      select * from posthaste.entries e
                       where e.queue_id = v_queue and e.lane = v_lane and e.ord is not null and e.due_at is null
                         and (e.ord, e.pos) >= (v_ord, v_pos) and (e.ord, e.pos) <= (c.last_xid, c.last_pos)
                         and posthaste.in_slots((e.pos >> 22) & 15, l.a, l.b, l.c, l.d, l.e, l.f)
                         and pg_visible_in_snapshot(e.xid, c.s1) and not pg_visible_in_snapshot(e.xid, c.s0)
                       order by e.ord, e.pos limit c.places) log
                    limit c.places) u) n
     where c.withheld is null or get_bit(c.withheld, n.place) = 0;
end $$;
