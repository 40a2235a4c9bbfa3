-- posthaste.in_slots: whether a slot is one of up to 16 named ones.
-- Spelled out as scalars because the planner prunes partitions by scalars, not
-- by an array parameter; inlined by the planner.
create or replace function posthaste.in_slots(slot bigint,
  l0 bigint, l1 bigint, l2 bigint, l3 bigint, l4 bigint, l5 bigint, l6 bigint, l7 bigint,
  l8 bigint, l9 bigint, l10 bigint, l11 bigint, l12 bigint, l13 bigint, l14 bigint, l15 bigint)
returns boolean language sql immutable parallel safe as
$$ select slot = l0 or slot = l1 or slot = l2 or slot = l3 or slot = l4 or slot = l5 or slot = l6 or slot = l7
       or slot = l8 or slot = l9 or slot = l10 or slot = l11 or slot = l12 or slot = l13 or slot = l14 or slot = l15 $$;
