-- posthaste.workers: the registered workers. state is alive, overdue (it missed its lease and
-- will be declared lost), lost, or ended (it left in order); the last two stay for about a day.
-- load is its state at the last heartbeat, or null: an object of concurrency; loads, an array with
-- an entry for each subscription; and running, the messages whose handlers had run longest (ran_ns:
-- for how many nanoseconds).
-- sinks are the subscriptions that it delivers to external systems, as a JSON array; null for none.
create or replace view posthaste.workers as
select w.id, w.name, w.version,
       case when w.lost_at is not null then 'lost' when w.ended_at is not null then 'ended'
            when posthaste.worker_overdue(w) then 'overdue' else 'alive' end as state,
       w.lease, w.started_at, w.heartbeat_at, w.lost_at, w.ended_at, w.load, w.sinks
  from posthaste.registrations w;
