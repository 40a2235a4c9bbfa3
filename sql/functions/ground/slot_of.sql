-- posthaste.slot_of: the slot of the ring that a position, or the id of a claim, lies in.
-- No SET and one expression: it is inlined, so that the planner prunes partitions by it. The rooms
-- send, claim and settle spell it out, because inlining takes time in each session's first call.
create or replace function posthaste.slot_of(pos bigint)
returns bigint language sql immutable parallel safe as
$$ select (pos >> 22) & 15 $$;
