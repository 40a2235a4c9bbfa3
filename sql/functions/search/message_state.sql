-- posthaste.message_state: the state of a message in one subscription. The view
-- posthaste.messages calls it.
-- Arguments: message id, number of the subscription; at: the row of its first entry in its
-- slot, or null, because the index on positions costs as much as all else; told: whether
-- attempts are wanted, which take longer.
-- Returns: state, due_at, attempts as posthaste.message; null if nothing is known any more. The
-- declared cost makes the planner call it after sort and limit.
create or replace function posthaste.message_state(p_id bigint, p_subscription int, p_at tid, p_told boolean, out state text, out due_at timestamptz, out attempts jsonb)
language plpgsql stable security definer cost 100000
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off set max_parallel_workers_per_gather = 0 as $$
begin
  select m.state, m.due_at, m.attempts into state, due_at, attempts
    from posthaste.message_rows(
           array(select e.head from posthaste.entries e
                  where posthaste.slot_of(e.pos) = posthaste.slot_of(p_id) and e.at_row = p_at and e.pos = p_id and e.message_id is null)
           || posthaste.other_heads(array[p_id]), array[p_id], p_told) m
   where m.subscription = p_subscription;
end $$;
