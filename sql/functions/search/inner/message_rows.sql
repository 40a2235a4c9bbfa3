-- posthaste.message_rows: all that is known of messages, from the ring, the dead letters and
-- the history, for display. The content of erased messages is left out.
-- Arguments: remaining entries of the messages as posthaste.message_states takes them; the
-- messages' ids in the history; told: whether attempts are wanted (if not, they are null
-- except for the history's).
-- Returns: per message and subscription one row, newest message first. kept: the row is from
-- the history. payload_pos: the entry that has the payload, null if none may be shown.
-- Reads: history, erased and the tables of posthaste.message_states.
create or replace function posthaste.message_rows(p_heads posthaste.head[], p_ids bigint[], p_told boolean default true)
returns table (message_id bigint, queue_id int, subscription smallint, subscription_name text, state text, due_at timestamptz, key text, kind text, headers jsonb,
  reference text, terms text[], content_type text, created_at timestamptz, attempts jsonb, erased_at timestamptz, kept boolean, payload_pos bigint, payload bytea)
language plpgsql stable rows 100
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off set max_parallel_workers_per_gather = 0 as $$
#variable_conflict use_column
begin
  return query
    with old as materialized (
      select * from posthaste.history_of(p_ids)
    ), gone as materialized (
      select g.message_id, max(g.at) as at
        from (select x.message_id, x.at from posthaste.erased x where x.message_id = any (p_ids)
              union all
              select d.message_id, d.erased_at from posthaste.dead_letter_entries d where d.message_id = any (p_ids) and d.erased_at is not null) g
       group by g.message_id
    ), ring as materialized (
      select (m.h).*, m.subscription, m.subscription_name, m.state as now, m.due_at as next, m.attempts as told
        from posthaste.message_states(p_heads, p_told) m
       where not exists (select from old o where o.message_id = (m.h).message_id and o.subscription = m.subscription)
    )
    select r.message_id, r.queue_id, r.subscription, r.subscription_name, r.now, r.next, case when g.at is null then r.key end, r.kind,
           case when g.at is null then r.headers end, case when g.at is null then r.reference end, case when g.at is null then r.terms end,
           coalesce(r.content_type, 'application/json'), r.created_at, case when g.at is null then r.told else posthaste.bare_story(r.told) end,
           g.at, false, case when g.at is null then r.pos end, null::bytea
      from ring r left join gone g on g.message_id = r.message_id
    union all
    select o.message_id, o.queue_id, o.subscription, s.name, o.state, null, o.key, o.kind, o.headers, o.reference, o.terms,
           coalesce(o.content_type, 'application/json'), o.created_at, o.attempts, o.erased_at, true, null, o.payload
      from old o join posthaste.subscriptions s on s.queue_id = o.queue_id and s.number = o.subscription
     order by 1 desc, 4;
end $$;
