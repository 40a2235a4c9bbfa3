-- posthaste.lane_open: which of some claims were open for a snapshot.
-- Arguments: ids of claims, ascending; the caller's holder (null: receivers, which count as
-- one); the snapshot: later settlements and this transaction's own do not count, because their
-- events are not seen either.
-- Returns: the open claims; if one of them belongs to another holder, that holder (0:
-- receivers; null if all are the caller's); the number of unsettled deliveries.
-- Reads: claims, settlements.
create or replace function posthaste.lane_open(p_claims bigint[], p_holder bigint, p_seen pg_snapshot,
  out open bigint[], out other bigint, out unsettled bigint)
language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_material = off set enable_memoize = off set jit = off as $$
#variable_conflict use_variable
declare
  v_epochs bigint[] := array[p_claims[1] >> 22];
  v_epoch bigint;
begin
  open := '{}';
  unsettled := 0;
  if cardinality(p_claims) > 0 then
    if p_claims[1] >> 22 <> p_claims[cardinality(p_claims)] >> 22 then
      v_epochs := array(select distinct x >> 22 from unnest(p_claims) x order by 1);
    end if;
    -- Slot by slot, and usually there is one: a slot that is a parameter prunes partitions before
    -- sixteen of them are set up, which would be most of the cost.
    foreach v_epoch in array v_epochs loop
      select open || coalesce(array_agg(k.id order by k.id) filter (where k.open > 0), '{}'),
             greatest(other, max(coalesce(k.holder, 0)) filter (where k.open > 0 and k.holder is distinct from p_holder)), unsettled + coalesce(sum(k.open), 0)
        into open, other, unsettled
        from (select c.id, c.holder,
                     c.places - case when c.single then (select count(*) from posthaste.settlements s
                                                          where s.slot = v_epoch & 15 and s.claim = c.id and pg_visible_in_snapshot(s.xid, p_seen))
                                     else coalesce((select bit_count(s.bits) from posthaste.settlements s
                                                     where s.slot = v_epoch & 15 and s.claim = c.id and s.part = 0 and pg_visible_in_snapshot(s.xid, p_seen)
                                                     order by s.slot, s.claim, s.part, s.number desc limit 1), 0) end as open
                from unnest(p_claims) i (id)
               cross join lateral (select * from posthaste.claims c where c.slot = v_epoch & 15 and c.id = i.id order by c.slot, c.id limit 1) c
               where i.id >> 22 = v_epoch
              offset 0) k; -- otherwise open deliveries would be counted twice
    end loop;
  end if;
end $$;
