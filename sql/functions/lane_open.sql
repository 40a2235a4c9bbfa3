-- posthaste.lane_open: which of some claims were open for a snapshot.
-- Arguments: ids of claims; who asks (null: receivers, who count as one); the
-- snapshot: later settlements do not count, and neither do this transaction's own,
-- for the events of both are not seen either.
-- Returns: those that are open; if one of them is another's, whose (0: receivers';
-- null if all are the caller's); how many deliveries are not settled.
-- Reads: claims, settlements.
create or replace function posthaste.lane_open(p_claims bigint[], p_holder bigint, p_seen pg_snapshot,
  out open bigint[], out other bigint, out unsettled bigint)
language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_material = off set enable_memoize = off set jit = off as $$
begin
  open := '{}';
  unsettled := 0;
  if cardinality(p_claims) > 0 then
    select coalesce(array_agg(k.id order by k.id) filter (where k.open > 0), '{}'),
           max(coalesce(k.holder, 0)) filter (where k.open > 0 and k.holder is distinct from p_holder), coalesce(sum(k.open), 0)
      into open, other, unsettled
      from (select c.id, c.holder,
                   c.places - case when c.single then (select count(*) from posthaste.settlements s
                                                        where s.slot = c.slot and s.claim = c.id and pg_visible_in_snapshot(s.xid, p_seen))
                                   else coalesce((select bit_count(s.bits) from posthaste.settlements s
                                                   where s.slot = c.slot and s.claim = c.id and s.part = 0 and pg_visible_in_snapshot(s.xid, p_seen)
                                                   order by s.slot, s.claim, s.part, s.number desc limit 1), 0) end as open
              from unnest(p_claims) i (id)
             cross join lateral (select * from posthaste.claims c where c.slot = (i.id >> 22) & 15 and c.id = i.id) c) k;
  end if;
end $$;
