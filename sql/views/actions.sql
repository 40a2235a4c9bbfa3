-- posthaste.actions: what operators did, who and when, one row for each message
-- that was acted on, or for the queue where the whole of it was, newest last by id.
-- by is the name that was given, or the session's user.
create or replace view posthaste.actions as
select a.id, a.at, a.by, a.action, (select q.name from posthaste.queue_settings q where q.id = a.queue_id) as queue, a.message_id, a.details, a.queue_id
  from posthaste.action_records a;
