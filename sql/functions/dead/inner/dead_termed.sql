-- posthaste.dead_termed: the ids of dead letters that have a term, or null if there are more
-- than 10,000 of them. Reads: dead_letter_entries.
create or replace function posthaste.dead_termed(p_term text)
returns bigint[] language plpgsql stable
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_indexscan = off set jit = off as $$
declare
  v_ids bigint[];
begin
  v_ids := array(select d.message_id from posthaste.dead_letter_entries d where d.terms @> array[p_term] limit 10001);
  return case when cardinality(v_ids) <= 10000 then v_ids end;
end $$;
