-- posthaste.reference_heads: the newest messages of one slot with a reference,
-- by its index. Reads: entries, outcomes.
create or replace function posthaste.reference_heads(p_queues int[], p_reference text, p_term text, p_slot bigint, p_before bigint, p_max int)
returns setof posthaste.head language plpgsql stable rows 100
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
begin
  return query
    select (x.h).* from unnest(p_queues) q (id) cross join lateral (
      select posthaste.head_of(e) as h from posthaste.entries e
       where e.queue_id = q.id and e.reference = p_reference and e.pos < p_before and ((e.pos >> 22) & 15) = p_slot and e.message_id is null
         and (p_term is null or e.terms @> array[p_term]
              or exists (select from posthaste.outcomes o where o.message_id = coalesce(e.message_id, e.pos) and o.terms @> array[p_term]))
       order by e.queue_id desc, e.reference desc, e.pos desc limit p_max) x;
  return query
    select (x.h).* from unnest(p_queues) q (id) cross join lateral (
      select posthaste.head_of(e) as h from posthaste.entries e
       where e.queue_id = q.id and e.reference = p_reference and ((e.pos >> 22) & 15) = p_slot and e.message_id < p_before
         and (p_term is null or e.terms @> array[p_term]
              or exists (select from posthaste.outcomes o where o.message_id = coalesce(e.message_id, e.pos) and o.terms @> array[p_term]))
       order by e.queue_id desc, e.reference desc, e.pos desc limit 10000) x;
end $$;
