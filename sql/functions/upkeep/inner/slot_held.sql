-- posthaste.slot_held: the open claim that lies in a slot or holds one of its entries, or null.
-- Once every reader is past the slot, null is final: later claims cannot hold its entries, and
-- settled deliveries stay settled.
-- Arguments: slot. Reads: registrations, leases, lease_cursors, held_claims,
-- claims, settlements, entries.
create or replace function posthaste.slot_held(p_slot int)
returns text language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set enable_hashjoin = off set enable_mergejoin = off set enable_material = off set enable_memoize = off set jit = off as $$
declare
  v_now pg_snapshot := posthaste.snapshot_now();
  l posthaste.live := posthaste.live_slots();
  v_claim posthaste.claims;
  v_id bigint;
begin
  for v_id in select r.id from posthaste.registrations r where not r.cleared order by r.id loop
    for v_claim in select k.* from posthaste.open_claims(v_id) k loop
      if posthaste.holds_slot(v_claim, p_slot) then
        return format('claim %s of worker %s is open', v_claim.id, v_id);
      end if;
    end loop;
  end loop;
  for v_claim in
    select k.*
      from (
        select e.claim
          from posthaste.subscriptions u
         cross join lateral (
           select e.claim from posthaste.leases e
            where e.subscriber = (u.queue_id::bigint << 10 | u.number)
              and e.until > coalesce((select k.t from posthaste.lease_cursors k where k.subscriber = (u.queue_id::bigint << 10 | u.number)), '-infinity')
              and posthaste.in_slots(e.slot, l.a, l.b, l.c, l.d, l.e, l.f)
            order by e.until) e
         where u.dropped_at is null
        union all
        -- A receive may commit after its lease has ended.
        select e.claim
          from posthaste.lease_cursors z
         cross join lateral posthaste.window_ranges(z.s, v_now) y
         cross join lateral unnest(y.lo, y.hi) r (lo, hi)
         cross join lateral (
           select e.claim from posthaste.leases e
            where e.subscriber = z.subscriber and e.xid >= r.lo::text::xid8 and e.xid < r.hi::text::xid8
              and posthaste.in_slots(e.slot, l.a, l.b, l.c, l.d, l.e, l.f)
            order by e.xid) e
        union all
        -- In the same snapshot: an extension removes a claim from here.
        select h.claim from posthaste.held_claims h) i
     cross join lateral (select k.* from posthaste.claims k where k.slot = posthaste.slot_of(i.claim) and k.id = i.claim order by k.slot, k.id limit 1) k
     where k.places > 0
       -- Not exists: it may become a join of all queues with all leases.
       and (select u.dropped_at is null from posthaste.subscriptions u where u.queue_id = k.reader >> 20 and u.number = (k.reader >> 10) & 1023)
       -- Received claims are settled delivery by delivery.
       and (select count(*) from posthaste.settlements s where s.slot = k.slot and s.claim = k.id) < k.places
  loop
    if posthaste.holds_slot(v_claim, p_slot) then
      return format('claim %s, received until its lease ends, is open', v_claim.id);
    end if;
  end loop;
  return null;
end $$;
