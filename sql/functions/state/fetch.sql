-- posthaste.fetch: reads the slices of a worker's claim of a number. It holds no locks of
-- readers and may be repeated: entries never change.
-- Arguments: worker and number; or, if they are known, the rows of its claims instead; the
-- live slots, if they are known and the claims are of this transaction.
-- Returns: one row per delivery that is not withheld, and for a worker also not expired, in key order; no rows if the number has
-- no deliveries. The id of a delivery is numbered_from + its ordinality, because numbering
-- the rows in here would copy them once more. No rows after a lost reply prove nothing: claim
-- again with the same number.
-- Errors: PH409 "reclaimed" if there are fewer rows than places in the claim, because places
-- would be counted wrong. The same error occurs if the snapshot is older than the claim.
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
  v_claim posthaste.claims;
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
    -- Both between and order by twice: otherwise the choice of the index is left to chance.
    v_claims := array(select k from (
                      select k from posthaste.claims k
                       where k.holder = p_worker and k.number between p_number and p_number
                         and posthaste.in_slots(k.slot, l.a, l.b, l.c, l.d, l.e, l.f)
                       order by k.number) x (k)
                     order by (x.k).id);
  end if;
  foreach v_claim in array v_claims loop
    continue when v_claim.places = 0;
    -- Places that expired leave gaps in the numbers, as those that were withheld do.
    if v_claim.expired is not null and p_worker is not null then
      -- A claim without open places keeps no slot, so its entries may be gone.
      continue when bit_count(v_claim.expired) + coalesce(bit_count(v_claim.withheld), 0) = v_claim.places;
      return query
        select v_claim.id * 4096 + d.place - v_returned - row_number() over (order by d.place), v_claim.alone, d.pos, d.message_id, d.created_at, d.due_at, d.attempt, d.failures, d.losses, d.losses_alone,
               d.content_type, d.key, d.kind, d.reference, d.headers, d.terms, d.trace, d.story, d.payload, d.ord
          from posthaste.deliveries_at(v_claim, array(
                 select g from generate_series(0, v_claim.places - 1) g
                  where get_bit(v_claim.expired, g) = 0 and coalesce(get_bit(v_claim.withheld, g), 0) = 0)) d
         order by d.place;
      get diagnostics v_rows = row_count;
      v_returned := v_returned + v_rows;
      continue;
    end if;
    v_queue := v_claim.reader >> 20;
    v_subscription := (v_claim.reader >> 10) & 1023;
    v_lane := (v_claim.reader >> 1) & 511;
    v_subscriber := v_claim.reader >> 10;
    if v_claim.window_claim is not null and v_claim.s1 is null then
      select k.s0, k.s1 into v_claim.s0, v_claim.s1 from posthaste.claims k where k.slot = v_claim.slot and k.id = v_claim.window_claim;
    end if;
    if v_claim.part = 3 or v_claim.sifted is not null then
      select x.* into u from posthaste.subscriptions x where x.queue_id = v_queue and x.number = v_subscription;
    end if;
    if v_claim.part in (0, 1, 3) then
      select x.lo, x.hi into v_lo, v_hi from posthaste.window_ranges(v_claim.s0, v_claim.s1) x;
    end if;
    -- The limits stop the scans: a row comparison from above ends them only where
    -- its first column does.
    if v_claim.part = 0 then
      -- By the ranges alone, as posthaste.fresh_slice found them.
      return query
        select v_claim.id * 4096 - v_returned - 1, v_claim.alone, e.*
          from unnest(v_lo, v_hi) r (lo, hi)
         cross join lateral (
        select e.pos, coalesce(e.message_id, e.pos), e.created_at, e.due_at, e.attempt, e.failures, e.losses, e.losses_alone,
               e.content_type, e.key, e.kind, e.reference, e.headers, e.terms, e.trace, e.story, e.payload, e.ord
          from posthaste.entries e
         where e.queue_id = v_queue and e.lane = v_lane and e.plain
           and (e.xid, e.pos) >= (greatest(r.lo::text::xid8, v_claim.first_xid), case when r.lo::text::xid8 > v_claim.first_xid then 0 else v_claim.first_pos end)
           and e.xid < r.hi::text::xid8 and (e.xid, e.pos) <= (v_claim.last_xid, v_claim.last_pos)
           and posthaste.in_slots((e.pos >> 22) & 15, l.a, l.b, l.c, l.d, l.e, l.f)
         order by e.xid, e.pos) e
         where r.hi > v_claim.first_xid::text::bigint and r.lo <= v_claim.last_xid::text::bigint
         limit v_claim.places;
    elsif v_claim.part = 4 and v_claim.withheld is null and v_claim.first_xid >= pg_snapshot_xmax(v_claim.s0) then
      -- Nothing is withheld, and no transaction committed late: posthaste.keyed_rows would
      -- copy the rows three times.
      return query
        select v_claim.id * 4096 - v_returned - 1, v_claim.alone, e.pos, coalesce(e.message_id, e.pos), e.created_at, e.due_at, e.attempt, e.failures, e.losses, e.losses_alone,
               e.content_type, e.key, e.kind, e.reference, e.headers, e.terms, e.trace, e.story, e.payload, e.ord
          from posthaste.entries e
         where e.queue_id = v_queue and e.lane = v_lane and e.ord is not null and e.due_at is null
           and (e.ord, e.pos) >= (v_claim.first_xid, v_claim.first_pos) and (e.ord, e.pos) <= (v_claim.last_xid, v_claim.last_pos)
           and posthaste.in_slots((e.pos >> 22) & 15, l.a, l.b, l.c, l.d, l.e, l.f)
           and pg_visible_in_snapshot(e.xid, v_claim.s1) and not pg_visible_in_snapshot(e.xid, v_claim.s0)
         order by e.ord, e.pos
         limit v_claim.places;
      get diagnostics v_rows = row_count;
    elsif v_claim.part = 1 then
      return query
        select v_claim.id * 4096 - v_returned - 1, v_claim.alone, e.*
          from unnest(v_lo, v_hi) r (lo, hi)
         cross join lateral (
        select e.pos, coalesce(e.message_id, e.pos), e.created_at, e.due_at, e.attempt, e.failures, e.losses, e.losses_alone,
               e.content_type, e.key, e.kind, e.reference, e.headers, e.terms, e.trace, e.story, e.payload, e.ord
          from posthaste.entries e
         where e.queue_id = v_queue and e.lane = v_lane and e.due_at is not null and e.due_at <= v_claim.t1
           and (e.xid, e.pos) >= (greatest(r.lo::text::xid8, v_claim.first_xid), case when r.lo::text::xid8 > v_claim.first_xid then 0 else v_claim.first_pos end)
           and e.xid < r.hi::text::xid8 and (e.xid, e.pos) <= (v_claim.last_xid, v_claim.last_pos)
           and posthaste.in_slots((e.pos >> 22) & 15, l.a, l.b, l.c, l.d, l.e, l.f)
           and (e.for_subscription is null or e.for_subscription = v_subscription)
           and (v_claim.sifted is null or posthaste.is_for(u, e.for_subscription, e.xid, e.due_at, e.kind, e.headers))
           and pg_visible_in_snapshot(e.xid, v_claim.s1) and not pg_visible_in_snapshot(e.xid, v_claim.s0)
           and not exists (select from posthaste.cancelled x where x.pos = e.pos and x.subscriber = v_subscriber)
         order by e.xid, e.pos) e
         where r.hi > v_claim.first_xid::text::bigint and r.lo <= v_claim.last_xid::text::bigint
         limit v_claim.places;
    elsif v_claim.part = 3 then
      return query
        select v_claim.id * 4096 - v_returned - 1, v_claim.alone, e.*
          from unnest(v_lo, v_hi) r (lo, hi)
         cross join lateral (
        select e.pos, coalesce(e.message_id, e.pos), e.created_at, e.due_at, e.attempt, e.failures, e.losses, e.losses_alone,
               e.content_type, e.key, e.kind, e.reference, e.headers, e.terms, e.trace, e.story, e.payload, e.ord
          from posthaste.entries e
         where e.queue_id = v_queue and e.lane = v_lane and e.plain
           and (e.xid, e.pos) >= (greatest(r.lo::text::xid8, v_claim.first_xid), case when r.lo::text::xid8 > v_claim.first_xid then 0 else v_claim.first_pos end)
           and e.xid < r.hi::text::xid8 and (e.xid, e.pos) <= (v_claim.last_xid, v_claim.last_pos)
           and posthaste.in_slots((e.pos >> 22) & 15, l.a, l.b, l.c, l.d, l.e, l.f)
           and pg_visible_in_snapshot(e.xid, v_claim.s1) and not pg_visible_in_snapshot(e.xid, v_claim.s0)
           and not exists (select from posthaste.cancelled x where x.pos = e.pos and x.subscriber = v_subscriber)
           and posthaste.passes(u.filter, e.kind, e.headers)
         order by e.xid, e.pos) e
         where r.hi > v_claim.first_xid::text::bigint and r.lo <= v_claim.last_xid::text::bigint
         limit v_claim.places;
    elsif v_claim.part >= 4 then
      -- Places that were withheld leave gaps in the numbers.
      return query
        select v_claim.id * 4096 + k.place - v_returned - row_number() over (), v_claim.alone, k.pos, k.message_id, k.created_at, k.due_at, k.attempt, k.failures, k.losses, k.losses_alone,
               k.content_type, k.key, k.kind, k.reference, k.headers, k.terms, k.trace, k.story, k.payload, k.ord
          from posthaste.keyed_rows(v_claim, l) k;
      get diagnostics v_rows = row_count;
      v_claim.places := v_claim.places - coalesce(bit_count(v_claim.withheld), 0);
    else
      return query
        select v_claim.id * 4096 - v_returned - 1, v_claim.alone, e.*
          from (
        select e.pos, coalesce(e.message_id, e.pos), e.created_at, e.due_at, e.attempt, e.failures, e.losses, e.losses_alone,
               e.content_type, e.key, e.kind, e.reference, e.headers, e.terms, e.trace, e.story, e.payload, e.ord
          from posthaste.entries e
         where e.queue_id = v_queue and e.lane = v_lane and e.due_at is not null and e.due_at <= v_claim.t1
           and (e.due_at, e.pos) >= (v_claim.first_due, v_claim.first_pos) and (e.due_at, e.pos) <= (v_claim.last_due, v_claim.last_pos)
           and posthaste.in_slots((e.pos >> 22) & 15, l.a, l.b, l.c, l.d, l.e, l.f)
           and (e.for_subscription is null or e.for_subscription = v_subscription)
           and (v_claim.sifted is null or posthaste.is_for(u, e.for_subscription, e.xid, e.due_at, e.kind, e.headers))
           and pg_visible_in_snapshot(e.xid, v_claim.s0)
           and not exists (select from posthaste.cancelled x where x.pos = e.pos and x.subscriber = v_subscriber)
         order by e.due_at, e.pos) e
         limit v_claim.places;
    end if;
    if v_claim.part < 4 then
      get diagnostics v_rows = row_count;
    end if;
    if v_rows <> v_claim.places then
      raise exception using errcode = 'PH409',
        message = format('claim %s has %s deliveries of which %s can be read: it was reclaimed, or this transaction is older than it', v_claim.id, v_claim.places, v_rows),
        hint = 'its deliveries are settled, or will be handed out again';
    end if;
    v_returned := v_returned + v_rows;
  end loop;
end $$;
