-- posthaste.leases_ended: whether leases of a subscriber have ended since they were last
-- examined, or one that was held is to be tried again.
-- Reads: lease_cursors, held_claims, leases.
create or replace function posthaste.leases_ended(p_subscriber bigint)
returns boolean language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off as $$
declare
  l posthaste.live;
  k posthaste.lease_cursors;
  v_lo bigint[];
  v_hi bigint[];
begin
  select * into k from posthaste.lease_cursors where subscriber = p_subscriber;
  if k.subscriber is null then
    return false; -- it has no leases
  end if;
  if exists (select from posthaste.held_claims h where h.subscriber = p_subscriber and h.next_try <= clock_timestamp()) then
    return true;
  end if;
  l := posthaste.live_slots();
  if exists (
    select from posthaste.leases x
     where x.subscriber = p_subscriber and x.until > k.t and x.until <= clock_timestamp()
       and posthaste.in_slots(x.slot, l.a, l.b, l.c, l.d, l.e, l.f)) then
    return true;
  end if;
  -- A receive may commit after its lease has ended.
  select lo, hi into v_lo, v_hi from posthaste.window_ranges(k.s, posthaste.snapshot_now());
  return exists (
    select from unnest(v_lo, v_hi) r (lo, hi)
     cross join lateral (
       select x.until from posthaste.leases x
        where x.subscriber = p_subscriber and x.xid >= r.lo::text::xid8 and x.xid < r.hi::text::xid8
          and posthaste.in_slots(x.slot, l.a, l.b, l.c, l.d, l.e, l.f)
        order by x.xid) n
     where n.until <= clock_timestamp());
end $$;
