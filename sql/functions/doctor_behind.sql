-- posthaste.doctor_behind: which subscriptions fall behind? Reads: queue_settings,
-- subscriptions, and what oldest_waiting reads.
create or replace function posthaste.doctor_behind()
returns table (level text, message text, hint text, queue text, subscription text) language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
  return query
    select 'warning', format('the oldest message that subscription %L of queue %L may have now has waited for %s%s', o.subscription, o.queue,
                             date_trunc('second', o.age), case when o.paused_at is not null then ': the queue is paused' else '' end),
           case when o.paused_at is not null then format('posthaste queue resume %s', o.queue)
                else 'run a worker for it, or more of them; look whether its handlers fail or take long' end, o.queue, o.subscription
      from (select q.name as queue, s.name as subscription, q.paused_at, clock_timestamp() - w.since as age
              from posthaste.oldest_waiting() w
              join posthaste.queue_settings q on q.id = w.queue_id
              join posthaste.subscriptions s on s.queue_id = w.queue_id and s.number = w.subscription) o
     where o.age > posthaste.patience()
     order by o.age desc limit 100;
end $$;
