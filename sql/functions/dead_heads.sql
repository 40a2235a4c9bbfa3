-- posthaste.dead_heads: dead letters as heads, for messages of which the log may
-- be reclaimed. Reads: dead_letter_entries.
create or replace function posthaste.dead_heads(p_ids bigint[])
returns setof posthaste.head language sql stable rows 100
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
  select d.message_id, d.pos, null::xid8, d.queue_id, d.lane, d.created_at, null::timestamptz, d.subscription, d.attempt, 0::smallint, 0::smallint,
         d.content_type, d.key, d.kind, d.reference, posthaste.all_headers(d.headers, d.trace), d.terms, d.story
    from posthaste.dead_letter_entries d where d.message_id = any (p_ids)
$$;
