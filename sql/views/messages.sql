-- posthaste.messages: every message whose first entry is in the log, one row for
-- each subscription, in no order. Ask for a few: by message_id, by queue and
-- reference, by terms @> array['…'], or with limit alone. state, due_at and
-- attempts are worked out per row that is shown, so a condition on state reads
-- the whole log: posthaste.list_messages pages through that, newest first.
create or replace view posthaste.messages as
select e.pos as message_id, q.name as queue, s.name as subscription,
       (posthaste.message_state(e.pos, s.number)).state, (posthaste.message_state(e.pos, s.number)).due_at,
       e.key, e.kind, e.headers, e.reference, e.terms, coalesce(e.content_type, 'application/json') as content_type, e.payload, e.created_at,
       (posthaste.message_state(e.pos, s.number)).attempts
  from posthaste.entries e
  join posthaste.queue_settings q on q.id = e.queue_id and q.dropped_at is null
  join posthaste.subscriptions s on s.queue_id = q.id and s.dropped_at is null
 where e.message_id is null and (e.due_at is not null or not pg_visible_in_snapshot(e.xid, s.since));
