-- posthaste.queues: one row per queue and subscription: its options, and the states of its
-- messages. Counts come from counters that maintenance keeps, as of counted_at, and never from a
-- count over the log.
--   depth           waiting messages: ready, scheduled and retrying ones
--   in_flight       handed out and not settled
--   dead            dead letters
--   sent, done, retried, lost   totals
-- With a filter, depth and sent include all messages that the subscription has not reached yet,
-- whether they pass the filter or not.
--   filter          the subscription's filter; null without one
--   max_lag         how far it may fall behind before its messages are skipped; null: no limit
--   kinds           options of kinds: an object by kind, of objects with max_attempts, timeout and
--                   backoff, or null
--   owner           who declares the queue, or null
--   withdrawn       cancelled, rescheduled, purged, or skipped because of max_lag
--   expired         not handed out because they were older than max_age
--   set_aside       messages that wait for a worker that handles their kind, by kind: an array of
--                   {kind, waiting, oldest_age (seconds), known, paused}, or null
--   paused_kinds    the paused kinds, or null
--   oldest_age      age of the oldest message that waits and may be handed out, or null
create or replace view posthaste.queues as
select q.name as queue, s.name as subscription,
       greatest(k.sent + k.again - k.dropped - k.sifted - k.handed, 0) as depth,
       greatest(k.handed - k.settled, 0) as in_flight,
       (select count(*) from posthaste.dead_letter_entries d where d.queue_id = q.id and d.subscription = s.number) as dead,
       k.sent - k.sifted as sent, k.done, k.retried, k.lost,
       r.sent_per_second, r.done_per_second,
       clock_timestamp() - w.since as oldest_age,
       q.max_attempts, q.backoff_base, q.backoff_max, q.timeout, q.max_payload, q.width as lanes, q.mode, q.paused_at, q.created_at, k.counted_at, q.retention, q.retain_payload,
       q.ordered, q.on_dead, q.key_concurrency, q.fair, q.concurrency,
       case when q.rate is not null then posthaste.rate_option(q.rate, q.burst) end as rate_limit,
       case when q.key_rate is not null then posthaste.rate_option(q.key_rate, q.key_burst) end as key_rate_limit,
       case when q.keyed then array(select k.key from posthaste.keys k where k.subscriber = q.id::bigint << 10 | s.number and k.paused_at is not null order by k.key limit 100) end as paused_keys,
       s.filter, s.max_lag, k.dropped as withdrawn, k.expired, q.max_age,
       case when q.kinds_aside is not null then (
         select jsonb_agg(jsonb_build_object('kind', a.kind, 'waiting', a.waiting, 'oldest_age', extract(epoch from clock_timestamp() - a.since), 'known', a.known, 'paused', a.paused) order by a.kind)
           from posthaste.set_aside() a where a.queue_id = q.id and a.subscription = s.number) end as set_aside, q.owner, posthaste.kinds_option(q.kind_options) as kinds, q.kinds_paused as paused_kinds
  from posthaste.queue_settings q
  join posthaste.subscriptions s on s.queue_id = q.id and s.dropped_at is null
  left join posthaste.counters k on k.queue_id = q.id and k.subscription = s.number
  left join posthaste.oldest_waiting() w on w.queue_id = q.id and w.subscription = s.number
 cross join lateral (
   select coalesce((k.sent - k.before_sent) / nullif(extract(epoch from k.counted_at - k.before_at), 0), 0)::float8 as sent_per_second,
          coalesce((k.done - k.before_done) / nullif(extract(epoch from k.counted_at - k.before_at), 0), 0)::float8 as done_per_second) r
 where q.dropped_at is null;
