-- posthaste.open_claims: a worker's claims with deliveries that are not settled: its
-- stragglers, and those from its mark on. The cost grows with the number of open claims and
-- of claims since the mark moved, not with the ring.
-- Arguments: worker. Reads: registrations, stragglers, claims, settlements,
-- subscriptions.
create or replace function posthaste.open_claims(p_worker bigint)
returns setof posthaste.claims language plpgsql volatile rows 10
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set enable_hashjoin = off set enable_mergejoin = off set enable_material = off set enable_memoize = off set jit = off as $$
declare
  -- Read first, in a statement of its own: claims that the mark passes meanwhile are found
  -- from here on all the same, and those that it passed before are among the stragglers.
  v_mark bigint := (select w.oldest_open from posthaste.registrations w where w.id = p_worker);
  l posthaste.live := posthaste.live_slots();
begin
  return query
    select c.*
      from posthaste.stragglers s
     cross join lateral (select k.* from posthaste.claims k where k.slot = (s.claim >> 22) & 15 and k.id = s.claim order by k.slot, k.id limit 1) c
     where s.worker = p_worker and c.number < v_mark and posthaste.claim_open(c.*::posthaste.claims)
     order by s.worker, s.claim;
  -- The same condition as claim_open, spelled out: a call for each claim would cost several
  -- times as much.
  return query
    select c.*
      from posthaste.claims c
     where c.holder = p_worker and c.number >= v_mark and c.places > 0
       and posthaste.in_slots(c.slot, l.a, l.b, l.c, l.d, l.e, l.f)
       and (select u.dropped_at is null from posthaste.subscriptions u where u.queue_id = c.reader >> 20 and u.number = (c.reader >> 10) & 1023)
       and case when c.single then (select count(*) from posthaste.settlements s where s.slot = c.slot and s.claim = c.id)
                else coalesce((select bit_count(s.bits) from posthaste.settlements s
                                where s.slot = c.slot and s.claim = c.id and s.part = 0
                                order by s.slot, s.claim, s.part, s.number desc limit 1), 0) end < c.places
     order by c.holder, c.number;
end $$;
