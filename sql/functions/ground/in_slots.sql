-- posthaste.in_slots: whether a slot lies in one of three runs of the ring. The bounds are
-- scalars because the planner prunes partitions by scalars, and not by an array parameter.
-- Inlined by the planner.
create or replace function posthaste.in_slots(slot bigint, a bigint, b bigint, c bigint, d bigint, e bigint, f bigint)
returns boolean language sql immutable parallel safe as
$$ select slot between a and b or slot between c and d or slot between e and f $$;
