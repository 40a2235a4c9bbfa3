-- posthaste.other_heads: what is left of a message beside its first entry: later
-- entries, dead letters and what is parked. Reads: entries, dead_letter_entries,
-- parked.
create or replace function posthaste.other_heads(p_id bigint)
returns posthaste.head[] language sql stable set search_path = pg_catalog, pg_temp as
$$ select array(select h from posthaste.later_heads(array[p_id]) h) || array(select h from posthaste.dead_heads(array[p_id]) h)
     || array(select h from posthaste.parked_heads(array[p_id]) h) $$;
