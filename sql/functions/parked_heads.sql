-- posthaste.parked_heads: parked messages as heads, for those of which the log may
-- be reclaimed. Reads: parked.
create or replace function posthaste.parked_heads(p_ids bigint[])
returns setof posthaste.head language sql stable rows 100
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
  select p.message_id, p.pos, null::xid8, (p.subscriber >> 10)::int, p.lane, p.created_at, null::timestamptz, (p.subscriber & 1023)::smallint,
         p.attempt, p.failures, p.losses, p.content_type, nullif(p.key, ''), p.kind, p.reference, posthaste.all_headers(p.headers, p.trace), p.terms, p.story
    from posthaste.parked p where p.message_id = any (p_ids)
$$;
