-- posthaste.deliveries_at: as posthaste.deliveries_of, but only for some places of a claim's
-- slice. Of the other places only the keys are read, to count them.
-- Arguments: the claim; places.
-- Errors: PH409 as posthaste.fetch, if there are fewer rows than places in the claim.
-- Reads: claims, entries, slots, cancelled, subscriptions.
create or replace function posthaste.deliveries_at(c posthaste.claims, p_places int[])
returns table (place int, pos bigint, message_id bigint, created_at timestamptz, due_at timestamptz,
  attempt smallint, failures smallint, losses smallint, losses_alone smallint,
  content_type text, key text, kind text, reference text, headers jsonb, terms text[], trace text, story jsonb, payload bytea, ord xid8, ages_from timestamptz)
language plpgsql stable rows 10
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set enable_hashjoin = off set enable_mergejoin = off set enable_material = off set jit = off as $$
#variable_conflict use_column
declare
  l posthaste.live := posthaste.live_slots();
  v_queue int := c.reader >> 20;
  v_subscription int := (c.reader >> 10) & 1023;
  v_lane int := (c.reader >> 1) & 511;
  v_subscriber bigint := c.reader >> 10;
  u posthaste.subscriptions;
  v_lo bigint[];
  v_hi bigint[];
  v_xids xid8[];
  v_dues timestamptz[];
  v_poss bigint[];
  v_rows int;
begin
  if c.window_claim is not null and c.s1 is null then
    select k.s0, k.s1 into c.s0, c.s1 from posthaste.claims k where k.slot = c.slot and k.id = c.window_claim;
  end if;
  if c.part >= 4 then
    return query select k.* from posthaste.keyed_rows(c, l) k where k.place = any (p_places);
    get diagnostics v_rows = row_count;
    if v_rows <> cardinality(p_places) then
      raise exception using errcode = 'PH409', message = format('claim %s cannot be read any more: it was reclaimed, or this transaction is older than it', c.id),
        hint = 'its deliveries are settled, or will be handed out again';
    end if;
    return;
  end if;
  if c.part = 3 or c.sifted is not null then
    select x.* into u from posthaste.subscriptions x where x.queue_id = v_queue and x.number = v_subscription;
  end if;
  -- The same slices as in posthaste.fetch, by their keys.
  if c.part in (0, 3) then
    select x.lo, x.hi into v_lo, v_hi from posthaste.window_ranges(c.s0, c.s1) x;
    select array_agg(k.xid), array_agg(k.pos) into v_xids, v_poss from (
      select e.xid, e.pos
        from unnest(v_lo, v_hi) r (lo, hi)
       cross join lateral (
         select e.xid, e.pos
           from posthaste.entries e
          where e.queue_id = v_queue and e.lane = v_lane and e.plain
            and (e.xid, e.pos) >= (greatest(r.lo::text::xid8, c.first_xid), case when r.lo::text::xid8 > c.first_xid then 0 else c.first_pos end)
            and e.xid < r.hi::text::xid8 and (e.xid, e.pos) <= (c.last_xid, c.last_pos)
            and posthaste.in_slots((e.pos >> 22) & 15, l.a, l.b, l.c, l.d, l.e, l.f)
            and pg_visible_in_snapshot(e.xid, c.s1) and not pg_visible_in_snapshot(e.xid, c.s0)
            and (c.part = 0 or posthaste.passes(u.filter, e.kind, e.headers)
                               and (select x.pos from posthaste.cancelled x where x.pos = e.pos and x.subscriber = v_subscriber limit 1) is null)
          order by e.xid, e.pos) e
       where r.hi > c.first_xid::text::bigint and r.lo <= c.last_xid::text::bigint
       limit c.places) k;
  elsif c.part = 1 then
    select x.lo, x.hi into v_lo, v_hi from posthaste.window_ranges(c.s0, c.s1) x;
    select array_agg(k.due_at), array_agg(k.pos) into v_dues, v_poss from (
      select e.due_at, e.pos
        from unnest(v_lo, v_hi) r (lo, hi)
       cross join lateral (
         select e.due_at, e.pos
           from posthaste.entries e
          where e.queue_id = v_queue and e.lane = v_lane and e.due_at is not null and e.due_at <= c.t1
            and (e.xid, e.pos) >= (greatest(r.lo::text::xid8, c.first_xid), case when r.lo::text::xid8 > c.first_xid then 0 else c.first_pos end)
            and e.xid < r.hi::text::xid8 and (e.xid, e.pos) <= (c.last_xid, c.last_pos)
            and posthaste.in_slots((e.pos >> 22) & 15, l.a, l.b, l.c, l.d, l.e, l.f)
            and (e.for_subscription is null or e.for_subscription = v_subscription)
            and (c.sifted is null or posthaste.is_for(u, e.for_subscription, e.xid, e.due_at, e.kind, e.headers))
            and pg_visible_in_snapshot(e.xid, c.s1) and not pg_visible_in_snapshot(e.xid, c.s0)
            and not exists (select from posthaste.cancelled x where x.pos = e.pos and x.subscriber = v_subscriber)
          order by e.xid, e.pos) e
       where r.hi > c.first_xid::text::bigint and r.lo <= c.last_xid::text::bigint
       limit c.places) k;
  else
    select array_agg(k.due_at), array_agg(k.pos) into v_dues, v_poss from (
      select e.due_at, e.pos
        from posthaste.entries e
       where e.queue_id = v_queue and e.lane = v_lane and e.due_at is not null and e.due_at <= c.t1
         and (e.due_at, e.pos) >= (c.first_due, c.first_pos) and (e.due_at, e.pos) <= (c.last_due, c.last_pos)
         and posthaste.in_slots((e.pos >> 22) & 15, l.a, l.b, l.c, l.d, l.e, l.f)
         and (e.for_subscription is null or e.for_subscription = v_subscription)
         and (c.sifted is null or posthaste.is_for(u, e.for_subscription, e.xid, e.due_at, e.kind, e.headers))
         and pg_visible_in_snapshot(e.xid, c.s0)
         and not exists (select from posthaste.cancelled x where x.pos = e.pos and x.subscriber = v_subscriber)
       order by e.due_at, e.pos
       limit c.places) k;
  end if;
  v_rows := coalesce(cardinality(v_poss), 0);
  if v_rows <> c.places then
    raise exception using errcode = 'PH409',
      message = format('claim %s has %s deliveries of which %s can be read: it was reclaimed, or this transaction is older than it', c.id, c.places, v_rows),
      hint = 'its deliveries are settled, or will be handed out again';
  end if;
  -- By their keys, each in its slot.
  if c.part in (0, 3) then
    return query
      select p, e.pos, coalesce(e.message_id, e.pos), e.created_at, e.due_at, e.attempt, e.failures, e.losses, e.losses_alone,
             e.content_type, e.key, e.kind, e.reference, e.headers, e.terms, e.trace, e.story, e.payload, e.ord, e.ages_from
        from unnest(p_places) p
       cross join lateral (
         select * from posthaste.entries e
          where e.queue_id = v_queue and e.lane = v_lane and e.plain
            and e.xid = v_xids[p + 1] and e.pos = v_poss[p + 1] and ((e.pos >> 22) & 15) = (v_poss[p + 1] >> 22) & 15
          order by e.xid, e.pos limit 1) e;
  else
    return query
      select p, e.pos, coalesce(e.message_id, e.pos), e.created_at, e.due_at, e.attempt, e.failures, e.losses, e.losses_alone,
             e.content_type, e.key, e.kind, e.reference, e.headers, e.terms, e.trace, e.story, e.payload, e.ord, e.ages_from
        from unnest(p_places) p
       cross join lateral (
         select * from posthaste.entries e
          where e.queue_id = v_queue and e.lane = v_lane and e.due_at is not null
            and e.due_at = v_dues[p + 1] and e.pos = v_poss[p + 1] and ((e.pos >> 22) & 15) = (v_poss[p + 1] >> 22) & 15
          order by e.due_at, e.pos limit 1) e;
  end if;
end $$;
