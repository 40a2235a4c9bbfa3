-- posthaste.dead_newest: the newest dead letters of given queues below an id, as
-- heads. Reads: dead_letter_entries.
create or replace function posthaste.dead_newest(p_queues int[], p_before bigint, p_max int)
returns setof posthaste.head language plpgsql stable rows 100
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
begin
  return query select (h).* from posthaste.dead_heads(array(
    select distinct d.message_id from unnest(p_queues) q (id) cross join lateral (
      select d.message_id from posthaste.dead_letter_entries d
       where d.queue_id = q.id and d.message_id < coalesce(p_before, 9223372036854775807)
       order by d.queue_id desc, d.message_id desc limit p_max) d
     order by d.message_id desc limit p_max)) h;
end $$;
