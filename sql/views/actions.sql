-- posthaste.actions: the actions of operators, with actor and time: one row for each affected
-- message, or one for the queue if the action applied to all of it; newest last by id. by is the
-- name that was passed, or the session's user.
create or replace view posthaste.actions as
select a.id, a.at, a.by, a.action, (select q.name from posthaste.queue_settings q where q.id = a.queue_id) as queue, a.message_id, a.details, a.queue_id
  from posthaste.action_records a;
