-- posthaste.head_of: an entry without its payload, as posthaste.head.
-- No SET and one expression: it is inlined, so that the payload is not read.
create or replace function posthaste.head_of(e posthaste.entries)
returns posthaste.head language sql immutable parallel safe
return row(coalesce(e.message_id, e.pos), e.pos, e.xid, e.queue_id, e.lane, e.created_at, e.due_at, e.for_subscription,
  e.attempt, e.failures, e.losses, e.content_type, e.key, e.kind, e.reference, posthaste.all_headers(e.headers, e.trace), e.terms, e.story)::posthaste.head;
