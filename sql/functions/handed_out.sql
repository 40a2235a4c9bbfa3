-- posthaste.handed_out: how many deliveries a subscription was ever handed: the
-- sum over its readers' newest claims. Reads: claims.
create or replace function posthaste.handed_out(p_queue int, p_subscription int, p_lanes int)
returns bigint language plpgsql stable security definer
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off as $$
declare
  l posthaste.live := posthaste.live_slots();
begin
  return (
    select coalesce(sum(c.total), 0)
      from generate_series(0, p_lanes - 1) lane cross join generate_series(0, 1) track
     cross join lateral (
       select k.total from posthaste.claims k
        where k.reader = posthaste.reader_key(p_queue, p_subscription, lane, track)
          and posthaste.in_slots(k.slot, l.a, l.b, l.c, l.d, l.e, l.f)
        order by k.reader desc, k.seq desc limit 1) c);
end $$;
