-- posthaste.schedules: recurring schedules. next_at and upcoming (the next five ticks) are null
-- while it is paused.
--   last_tick, last_message_id, last_sent_at   the last tick with a message
--   sent, missed   ticks with a message of their own, and ticks without one
--   error          why the message of the last tick could not be sent; null if it was sent
create or replace view posthaste.schedules as
select s.name, q.name as queue, s.spec, s.time_zone, s.catch_up, s.payload, s.options,
       case when s.paused_at is null then s.next_at end as next_at,
       case when s.paused_at is null then posthaste.upcoming_ticks(s, 5) end as upcoming,
       s.last_tick, s.last_id as last_message_id, s.last_sent_at, s.sent, s.missed, s.error, s.paused_at, s.created_at, s.changed_at
  from posthaste.schedule_settings s
  join posthaste.queue_settings q on q.id = s.queue_id;
