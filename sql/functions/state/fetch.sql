-- posthaste.fetch: reads the slices of a worker's claim of a number, outside the
-- readers' locks and as often as wanted: entries never change.
-- Arguments: worker and number; or, where they are known, the rows of its claims
-- in their place; the live slots, if they are known and the claims are of this
-- transaction.
-- Returns: one row per delivery that is not withheld, in key order; none where
-- the number has nothing. A row's delivery is numbered_from + its ordinality:
-- numbering the rows in here would copy them all once more. An empty answer after a lost reply proves nothing:
-- claim again with the same number.
-- Errors: PH409 "reclaimed" if there are not as many rows as the claim says, for
-- places would be counted wrong. A snapshot older than the claim ends so, too.
-- Reads: claims, entries, slots, cancelled, subscriptions.
create or replace function posthaste.fetch(p_worker bigint, p_number bigint, p_claims posthaste.claims[] default null,
  p_live posthaste.live default null)
returns table (numbered_from bigint, alone boolean, pos bigint, message_id bigint, created_at timestamptz, due_at timestamptz,
  attempt smallint, failures smallint, losses smallint, losses_alone smallint,
  content_type text, key text, kind text, reference text, headers jsonb, terms text[], trace text, story jsonb, payload bytea, ord xid8)
language plpgsql stable security definer rows 1000
set search_path = pg_catalog, pg_temp set max_parallel_workers_per_gather = 0 set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set enable_hashjoin = off set enable_mergejoin = off set enable_material = off set jit = off as $$
declare
  c posthaste.claims;
  l posthaste.live := coalesce(p_live, posthaste.live_slots());
  v_claims posthaste.claims[] := p_claims;
  v_queue int;
  v_subscription int;
  v_lane int;
  v_subscriber bigint;
  u posthaste.subscriptions;
  v_lo bigint[];
  v_hi bigint[];
  v_rows int;
  v_returned int := 0;
begin
  if v_claims is null then
    -- Between and ordered twice, or the choice of the index would be left to chance.
    v_claims := array(select k from (
                      select k from posthaste.claims k
                       where k.holder = p_worker and k.number between p_number and p_number
                         and posthaste.in_slots(k.slot, l.a, l.b, l.c, l.d, l.e, l.f)
                       order by k.number) x (k)
                     order by (x.k).id);
  end if;
  foreach c in array v_claims loop
    continue when c.places = 0;
    v_queue := c.reader >> 20;
    v_subscription := (c.reader >> 10) & 1023;
    v_lane := (c.reader >> 1) & 511;
    v_subscriber := c.reader >> 10;
    if c.window_claim is not null and c.s1 is null then
      select k.s0, k.s1 into c.s0, c.s1 from posthaste.claims k where k.slot = c.slot and k.id = c.window_claim;
    end if;
    if c.part = 3 or c.sifted is not null then
      select x.* into u from posthaste.subscriptions x where x.queue_id = v_queue and x.number = v_subscription;
    end if;
    if c.part in (0, 1, 3) then
      select x.lo, x.hi into v_lo, v_hi from posthaste.window_ranges(c.s0, c.s1) x;
    end if;
    -- The limits stop the scans: a row comparison from above ends them only where
    -- its first column does.
    if c.part = 0 then
      -- By the ranges alone, as posthaste.fresh_slice found them.
      return query
        select c.id * 4096 - v_returned - 1, c.alone, e.*
          from unnest(v_lo, v_hi) r (lo, hi)
         cross join lateral (
        select e.pos, coalesce(e.message_id, e.pos), e.created_at, e.due_at, e.attempt, e.failures, e.losses, e.losses_alone,
               e.content_type, e.key, e.kind, e.reference, e.headers, e.terms, e.trace, e.story, e.payload, e.ord
          from posthaste.entries e
         where e.queue_id = v_queue and e.lane = v_lane and e.plain
           and (e.xid, e.pos) >= (greatest(r.lo::text::xid8, c.first_xid), case when r.lo::text::xid8 > c.first_xid then 0 else c.first_pos end)
           and e.xid < r.hi::text::xid8 and (e.xid, e.pos) <= (c.last_xid, c.last_pos)
           and posthaste.in_slots((e.pos >> 22) & 15, l.a, l.b, l.c, l.d, l.e, l.f)
         order by e.xid, e.pos) e
         where r.hi > c.first_xid::text::bigint and r.lo <= c.last_xid::text::bigint
         limit c.places;
    elsif c.part = 4 and c.withheld is null and c.first_xid >= pg_snapshot_xmax(c.s0) then
      -- Nothing is withheld, and nothing came late: by posthaste.keyed_rows it would be
      -- copied three times.
      return query
        select c.id * 4096 - v_returned - 1, c.alone, e.pos, coalesce(e.message_id, e.pos), e.created_at, e.due_at, e.attempt, e.failures, e.losses, e.losses_alone,
               e.content_type, e.key, e.kind, e.reference, e.headers, e.terms, e.trace, e.story, e.payload, e.ord
          from posthaste.entries e
         where e.queue_id = v_queue and e.lane = v_lane and e.ord is not null and e.due_at is null
           and (e.ord, e.pos) >= (c.first_xid, c.first_pos) and (e.ord, e.pos) <= (c.last_xid, c.last_pos)
           and posthaste.in_slots((e.pos >> 22) & 15, l.a, l.b, l.c, l.d, l.e, l.f)
           and pg_visible_in_snapshot(e.xid, c.s1) and not pg_visible_in_snapshot(e.xid, c.s0)
         order by e.ord, e.pos
         limit c.places;
      get diagnostics v_rows = row_count;
    elsif c.part = 1 then
      return query
        select c.id * 4096 - v_returned - 1, c.alone, e.*
          from unnest(v_lo, v_hi) r (lo, hi)
         cross join lateral (
        select e.pos, coalesce(e.message_id, e.pos), e.created_at, e.due_at, e.attempt, e.failures, e.losses, e.losses_alone,
               e.content_type, e.key, e.kind, e.reference, e.headers, e.terms, e.trace, e.story, e.payload, e.ord
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
         limit c.places;
    elsif c.part = 3 then
      return query
        select c.id * 4096 - v_returned - 1, c.alone, e.*
          from unnest(v_lo, v_hi) r (lo, hi)
         cross join lateral (
        select e.pos, coalesce(e.message_id, e.pos), e.created_at, e.due_at, e.attempt, e.failures, e.losses, e.losses_alone,
               e.content_type, e.key, e.kind, e.reference, e.headers, e.terms, e.trace, e.story, e.payload, e.ord
          from posthaste.entries e
         where e.queue_id = v_queue and e.lane = v_lane and e.plain
           and (e.xid, e.pos) >= (greatest(r.lo::text::xid8, c.first_xid), case when r.lo::text::xid8 > c.first_xid then 0 else c.first_pos end)
           and e.xid < r.hi::text::xid8 and (e.xid, e.pos) <= (c.last_xid, c.last_pos)
           and posthaste.in_slots((e.pos >> 22) & 15, l.a, l.b, l.c, l.d, l.e, l.f)
           and pg_visible_in_snapshot(e.xid, c.s1) and not pg_visible_in_snapshot(e.xid, c.s0)
           and not exists (select from posthaste.cancelled x where x.pos = e.pos and x.subscriber = v_subscriber)
           and posthaste.passes(u.filter, e.kind, e.headers)
         order by e.xid, e.pos) e
         where r.hi > c.first_xid::text::bigint and r.lo <= c.last_xid::text::bigint
         limit c.places;
    elsif c.part >= 4 then
      -- Places that were withheld leave gaps in the numbers.
      return query
        select c.id * 4096 + k.place - v_returned - row_number() over (), c.alone, k.pos, k.message_id, k.created_at, k.due_at, k.attempt, k.failures, k.losses, k.losses_alone,
               k.content_type, k.key, k.kind, k.reference, k.headers, k.terms, k.trace, k.story, k.payload, k.ord
          from posthaste.keyed_rows(c, l) k;
      get diagnostics v_rows = row_count;
      c.places := c.places - coalesce(bit_count(c.withheld), 0);
    else
      return query
        select c.id * 4096 - v_returned - 1, c.alone, e.*
          from (
        select e.pos, coalesce(e.message_id, e.pos), e.created_at, e.due_at, e.attempt, e.failures, e.losses, e.losses_alone,
               e.content_type, e.key, e.kind, e.reference, e.headers, e.terms, e.trace, e.story, e.payload, e.ord
          from posthaste.entries e
         where e.queue_id = v_queue and e.lane = v_lane and e.due_at is not null and e.due_at <= c.t1
           and (e.due_at, e.pos) >= (c.first_due, c.first_pos) and (e.due_at, e.pos) <= (c.last_due, c.last_pos)
           and posthaste.in_slots((e.pos >> 22) & 15, l.a, l.b, l.c, l.d, l.e, l.f)
           and (e.for_subscription is null or e.for_subscription = v_subscription)
           and (c.sifted is null or posthaste.is_for(u, e.for_subscription, e.xid, e.due_at, e.kind, e.headers))
           and pg_visible_in_snapshot(e.xid, c.s0)
           and not exists (select from posthaste.cancelled x where x.pos = e.pos and x.subscriber = v_subscriber)
         order by e.due_at, e.pos) e
         limit c.places;
    end if;
    if c.part < 4 then
      get diagnostics v_rows = row_count;
    end if;
    if v_rows <> c.places then
      raise exception using errcode = 'PH409',
        message = format('claim %s has %s deliveries of which %s can be read: it was reclaimed, or this transaction is older than it', c.id, c.places, v_rows),
        hint = 'its deliveries are settled, or will be handed out again';
    end if;
    v_returned := v_returned + v_rows;
  end loop;
end $$;
