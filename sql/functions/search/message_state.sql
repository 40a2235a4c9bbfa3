-- posthaste.message_state: where a message stands for one subscription, for the
-- view posthaste.messages.
-- Arguments: message id, number of the subscription; at: where its first entry lies in
-- its slot, for the index on positions costs as much as all else (null: there is none);
-- told: whether attempts are wanted, which take longer.
-- Returns: state, due_at, attempts as posthaste.message; null where nothing is
-- known any more. The cost keeps the planner from asking before sort and limit.
create or replace function posthaste.message_state(p_id bigint, p_subscription int, p_at tid, p_told boolean, out state text, out due_at timestamptz, out attempts jsonb)
language plpgsql stable security definer cost 100000
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off set max_parallel_workers_per_gather = 0 as $$
begin
  select m.state, m.due_at, m.attempts into state, due_at, attempts
    from posthaste.message_rows(
           array(select e.head from posthaste.entries e
                  where ((e.pos >> 22) & 15) = (p_id >> 22) & 15 and e.at_row = p_at and e.pos = p_id and e.message_id is null)
           || posthaste.other_heads(array[p_id]), array[p_id], p_told) m
   where m.subscription = p_subscription;
end $$;
