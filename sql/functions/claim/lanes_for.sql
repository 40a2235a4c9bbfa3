-- posthaste.lanes_for: the lanes of a queue with messages that were set aside, in the order in
-- which a claim looks at them: half of the claims begin with the lanes of kinds, so that neither
-- side starves.
-- Arguments: the queue's width, prioritized, kind_lanes, kinds_aside and kinds_paused, at which
-- no claim looks; the kinds that the
-- worker handles, as a JSON array (null: all); any number, which differs from claim to claim.
-- Returns: the lanes.
create or replace function posthaste.lanes_for(p_width int, p_prioritized boolean, p_kind_lanes text[], p_aside text[], p_paused text[], p_kinds jsonb, p_start bigint)
returns int[] language sql volatile as $$
  select array(select x.lane
                 from (select posthaste.lane_of_round(g, p_width, f.first, p_start) as lane, 0 as side, g as place
                         from (select posthaste.first_priority(p_prioritized) as first) f
                        cross join generate_series(0, p_width * case when p_prioritized then 4 else 1 end - 1) g
                       union all
                       select 4 * p_width + (u.n - 1)::int, 1, ((u.n + p_start) % cardinality(p_kind_lanes))::int
                         from unnest(p_kind_lanes) with ordinality u (kind, n)
                        where u.kind = any (p_aside) and (u.kind = any (p_paused)) is not true and (p_kinds is null or p_kinds ? u.kind)) x
                order by (x.side + p_start) % 2, x.place)
$$;
