-- posthaste.rescue_leases: examines the ends of leases of one subscriber, each once, and
-- rescues at most one claim.
-- Arguments: subscriber (reader >> 10).
-- Returns: the number of lost deliveries.
-- The ends that passed since the last look are those that became visible since its snapshot,
-- and those visible before whose time came since. Progress is kept in lease_cursors; a look
-- that finds another session at work leaves it to that one. A claim of which another session is
-- settling a part is stored in held_claims and tried again by later looks, at most once a
-- second. So such claims delay nothing, however long their settles stay open. A look stops
-- after 100 ms of such tries.
-- Locks: a try-lock per subscriber. Updates: lease_cursors, held_claims.
create or replace function posthaste.rescue_leases(p_subscriber bigint)
returns int language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off as $$
declare
  k posthaste.lease_cursors;
  l posthaste.live;
  s pg_snapshot;
  t timestamptz := clock_timestamp();
  v_held bigint;
  v_stop timestamptz := t + interval '100 milliseconds';
  v_waited boolean := false;
  v_end record;
  v_claim posthaste.claims;
  v_lost int := 0;
  v_reached timestamptz;
  v_now timestamptz;
  v_lo bigint[];
  v_hi bigint[];
begin
  if not pg_try_advisory_xact_lock(posthaste.lock_key(10, p_subscriber)) then
    return 0;
  end if;
  -- After t was taken: every end of these claims up to t counts as ended here, so that those
  -- skipped below are examined, too.
  for v_held in
    select h.claim from posthaste.held_claims h
     where h.subscriber = p_subscriber and h.next_try <= t order by h.next_try, h.claim
  loop
    v_lost := posthaste.rescue_claim(v_held);
    if v_lost = 0 then
      delete from posthaste.held_claims h where h.subscriber = p_subscriber and h.claim = v_held;
    else
      -- It may have been held in part: only the next try shows it. A quarantined claim is tried
      -- once an hour.
      update posthaste.held_claims h set next_try = clock_timestamp() + case when v_lost < 0 and h.tries > 10 then interval '1 hour' else interval '1 second' end where h.subscriber = p_subscriber and h.claim = v_held;
    end if;
    if v_lost > 0 then
      return v_lost;
    end if;
    v_lost := 0;
    exit when clock_timestamp() > v_stop;
  end loop;
  select * into k from posthaste.lease_cursors where subscriber = p_subscriber;
  if k.subscriber is null then
    k.subscriber := p_subscriber;
    select since, '-infinity' into k.s, k.t from posthaste.subscriptions
     where queue_id = p_subscriber >> 10 and number = p_subscriber & 1023;
  end if;
  s := posthaste.snapshot_now();
  t := greatest(t, k.t);
  v_now := t;
  l := posthaste.live_slots();
  -- In steps of 256 ends: t becomes the time up to which all are examined now.
  select coalesce((select x.until from posthaste.leases x
                    where x.subscriber = p_subscriber and x.until > k.t and x.until <= t and pg_visible_in_snapshot(x.xid, k.s)
                      and posthaste.in_slots(x.slot, l.a, l.b, l.c, l.d, l.e, l.f)
                    order by x.until offset 255 limit 1), t) into t;
  v_reached := t;
  select lo, hi into v_lo, v_hi from posthaste.window_ranges(k.s, s);
  for v_end in
    -- Each part is ordered: otherwise the choice of its index is left to chance.
    select x.claim, x.until from (
      select n.claim, n.until
        from unnest(v_lo, v_hi) r (lo, hi)
       cross join lateral (
         select x.claim, x.until from posthaste.leases x
          where x.subscriber = p_subscriber and x.xid >= r.lo::text::xid8 and x.xid < r.hi::text::xid8 and x.until <= t
            and posthaste.in_slots(x.slot, l.a, l.b, l.c, l.d, l.e, l.f)
          order by x.xid) n
      union all
      (select x.claim, x.until from posthaste.leases x
        where x.subscriber = p_subscriber and x.until > k.t and x.until <= t and pg_visible_in_snapshot(x.xid, k.s)
          and posthaste.in_slots(x.slot, l.a, l.b, l.c, l.d, l.e, l.f)
        order by x.until)) x
     order by x.until
  loop
    continue when exists (select from posthaste.held_claims h where h.subscriber = p_subscriber and h.claim = v_end.claim);
    select * into v_claim from posthaste.claims where slot = (v_end.claim >> 22) & 15 and id = v_end.claim;
    continue when v_claim.id is null or not posthaste.claim_open(v_claim);
    if v_lost > 0 or v_waited and clock_timestamp() > v_stop then
      -- One claim per transaction, and few tries in vain: this one is left to the next call.
      v_reached := least(v_reached, v_end.until - interval '1 microsecond');
      exit;
    end if;
    v_lost := posthaste.rescue_claim(v_claim.id);
    if v_lost < 0 or (v_lost > 0 and posthaste.claim_open(v_claim)) then
      -- Held in part by a settle in progress, or extended in part, which the next try shows.
      insert into posthaste.held_claims (subscriber, claim, next_try) values (p_subscriber, v_claim.id, clock_timestamp() + interval '1 second')
      on conflict (subscriber, claim) do update set next_try = excluded.next_try;
      v_waited := true;
      v_lost := greatest(v_lost, 0);
    end if;
  end loop;
  -- Small progress is also written if many ends lie close together: otherwise the same
  -- 256 would be examined forever.
  if v_reached > k.t + interval '100 milliseconds' or v_reached > k.t and t < v_now then
    insert into posthaste.lease_cursors (subscriber, s, t) values (p_subscriber, s, v_reached)
    on conflict (subscriber) do update set s = excluded.s, t = excluded.t;
  end if;
  return v_lost;
end $$;
