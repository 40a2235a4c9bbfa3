-- posthaste.append_again: appends a withdrawn entry again with another due time or content, for
-- one subscription or (null) for all that the old entry was for.
-- Arguments: the entry; the due time, null to keep it, or now; the subscription; the content,
-- null to keep it.
-- Called under the locks of these readers. Inserts: entries_other, words, cancelled.
create or replace function posthaste.append_again(h posthaste.head, p_due timestamptz, p_for int, p_content posthaste.entries_other)
returns void language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off as $$
declare
  v_pos bigint;
begin
  with again as (
    insert into posthaste.entries_other (ord, message_id, created_at, due_at, queue_id, lane, for_subscription, attempt, failures, losses, losses_alone, ages_from,
                                 content_type, key, kind, reference, headers, terms, trace, story, payload)
  select f.ord, coalesce(f.message_id, f.pos), f.created_at, coalesce(p_due, f.due_at, clock_timestamp()), f.queue_id, coalesce(p_content.lane, posthaste.lane_again(f.lane, f.kind is distinct from z.kind, f.queue_id)), p_for, f.attempt, f.failures, f.losses, f.losses_alone,
         coalesce(p_due, f.ages_from),
         z.content_type, z.key, z.kind, z.reference, z.headers, z.terms, z.trace, f.story, z.payload
    from posthaste.entries f
   cross join lateral (
     select f.content_type, f.key, f.kind, f.reference, f.headers, f.terms, f.trace, f.payload where p_content.payload is null
     union all
     select p_content.content_type, p_content.key, p_content.kind, p_content.reference, posthaste.options_kept(p_content.headers, f.headers), p_content.terms, p_content.trace, p_content.payload
      where p_content.payload is not null) z
   where ((f.pos >> 22) & 15) = (h.pos >> 22) & 15 and f.pos = h.pos
  returning pos, message_id, queue_id, lane, reference, terms
  ), named as (
    insert into posthaste.words (slot, message_id, pos, queue_id, lane, word)
    select a.pos >> 22 & 15, a.message_id, a.pos, a.queue_id, a.lane, w
      from again a cross join lateral unnest(posthaste.words_of(a.reference, a.terms)) w where num_nonnulls(a.reference, a.terms) > 0
  )
  select a.pos into v_pos from again a;
  if p_for is null then
    -- As in posthaste.carry_slot: it is no new message for subscriptions that the old entry
    -- was not for, or is not any more.
    insert into posthaste.cancelled (pos, subscriber, outcome, noted)
    select v_pos, h.queue_id::bigint << 10 | x.number, coalesce(z.outcome, 'earlier'), '3'
      from posthaste.subscriptions x
      left join posthaste.cancelled z on z.pos = h.pos and z.subscriber = h.queue_id::bigint << 10 | x.number
     where x.queue_id = h.queue_id and x.dropped_at is null
       and case when z.pos is null then pg_visible_in_snapshot(h.xid, x.since) and (x.scheduled and h.due_at > x.created_at) is not true
                else z.outcome <> 'carried' end;
  end if;
end $$;
