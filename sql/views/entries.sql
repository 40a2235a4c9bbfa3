-- posthaste.entries: all entries of the ring, from their two tables. A query with the condition
-- plain reads entries_plain alone, because the planner knows that the other table has no such
-- rows, and may use its index of the log, which has only these. ages_from is the time from which the age
-- of a message counts; null if that is created_at. at_row is the row's place in its
-- table; head is the value of type posthaste.head.
create or replace view posthaste.entries as
select p.xid, p.pos, null::xid8 as ord, null::bigint as message_id, p.created_at, null::timestamptz as due_at, p.queue_id, p.lane,
       null::smallint as for_subscription, 1::smallint as attempt, 0::smallint as failures, 0::smallint as losses, 0::smallint as losses_alone,
       (p.more ->> 'content_type') collate "C" as content_type, p.key, p.kind, (p.more ->> 'reference') collate "C" as reference, p.more -> 'headers' as headers,
       (case when p.more is not null then posthaste.texts_of(p.more -> 'terms') end) collate "C" as terms, p.trace, null::jsonb as story, p.payload, null::timestamptz as ages_from, p.lane >= 0 as plain, p.ctid as at_row,
       row(p.pos, p.pos, p.xid, p.queue_id, p.lane, p.created_at, null, null, 1, 0, 0, p.more ->> 'content_type', p.key, p.kind,
           p.more ->> 'reference', posthaste.all_headers(p.more -> 'headers', p.trace), (case when p.more is not null then posthaste.texts_of(p.more -> 'terms') end), null)::posthaste.head as head
  from posthaste.entries_plain p
union all
select o.xid, o.pos, o.ord, o.message_id, o.created_at, o.due_at, o.queue_id, o.lane,
       o.for_subscription, o.attempt, o.failures, o.losses, o.losses_alone,
       o.content_type, o.key, o.kind, o.reference, o.headers, o.terms, o.trace, o.story, o.payload,
       coalesce(o.ages_from, case when o.message_id is null then o.due_at end), false, o.ctid,
       row(coalesce(o.message_id, o.pos), o.pos, o.xid, o.queue_id, o.lane, o.created_at, o.due_at, o.for_subscription, o.attempt, o.failures, o.losses,
           o.content_type, o.key, o.kind, o.reference, posthaste.all_headers(o.headers, o.trace), o.terms, o.story)::posthaste.head
  from posthaste.entries_other o;
