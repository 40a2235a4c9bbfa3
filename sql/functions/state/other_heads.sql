-- posthaste.other_heads: the entries of messages other than their first ones: later entries
-- and, if the log was reclaimed, dead letters and parked messages.
-- Reads: entries, dead_letter_entries, parked.
create or replace function posthaste.other_heads(p_ids bigint[])
returns posthaste.head[] language plpgsql stable
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
begin
  return array(select h from posthaste.later_heads(p_ids) h)
    || array(
      select row(d.message_id, d.pos, null, d.queue_id, d.lane, d.created_at, null, d.subscription, d.attempt, 0, 0,
                 d.content_type, d.key, d.kind, d.reference, posthaste.all_headers(d.headers, d.trace), d.terms, d.story)::posthaste.head
        from posthaste.dead_letter_entries d where d.message_id = any (p_ids))
    || array(
      select row(p.message_id, p.pos, null, p.subscriber >> 10, p.lane, p.created_at, null, p.subscriber & 1023, p.attempt, p.failures, p.losses,
                 p.content_type, nullif(p.key, ''), p.kind, p.reference, posthaste.all_headers(p.headers, p.trace), p.terms, p.story)::posthaste.head
        from posthaste.parked p where p.message_id = any (p_ids));
end $$;
