-- posthaste.lane_busy: the hashes of the keys of the deliveries of some claims that were not
-- settled for a snapshot, one for each place.
-- Arguments: ids of claims, ascending; the snapshot. Reads: claims, settlements.
create or replace function posthaste.lane_busy(p_claims bigint[], p_seen pg_snapshot)
returns bigint[] language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_material = off set enable_memoize = off set jit = off as $$
declare
  v_epochs bigint[] := array[p_claims[1] >> 22];
  v_epoch bigint;
  v_hashes bigint[] := '{}';
begin
  if p_claims[1] >> 22 <> p_claims[cardinality(p_claims)] >> 22 then
    v_epochs := array(select distinct x >> 22 from unnest(p_claims) x order by 1);
  end if;
  if cardinality(p_claims) > 0 then
    -- Slot by slot, as in posthaste.lane_open.
    foreach v_epoch in array v_epochs loop
      v_hashes := v_hashes || array(
        select k.hash
          from (select c.keys[g + 1] as hash
                  from unnest(p_claims) i (id)
                 cross join lateral (select * from posthaste.claims c where c.slot = v_epoch & 15 and c.id = i.id and c.keys is not null order by c.slot, c.id limit 1) c
                  left join lateral (select s.bits from posthaste.settlements s
                                      where not c.single and s.slot = v_epoch & 15 and s.claim = c.id and s.part = 0 and pg_visible_in_snapshot(s.xid, p_seen)
                                      order by s.slot, s.claim, s.part, s.number desc limit 1) b on true
                 cross join lateral generate_series(0, c.places - 1) g
                 where i.id >> 22 = v_epoch
                   and case when c.single then not exists (select from posthaste.settlements s
                                                            where s.slot = v_epoch & 15 and s.claim = c.id and s.part = g and pg_visible_in_snapshot(s.xid, p_seen))
                            else coalesce(get_bit(b.bits, g), 0) = 0 end) k
         where k.hash is not null);
    end loop;
  end if;
  return v_hashes;
end $$;
