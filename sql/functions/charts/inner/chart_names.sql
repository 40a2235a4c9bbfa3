-- posthaste.chart_names: the subscriptions that exist, by their names.
-- Arguments, null for all: the names of the queues and of the subscription.
-- Returns: their numbers and names; since: from when on figures of these numbers are theirs. A
-- number can be given out again, at least an hour after its last use.
-- Reads: queue_settings, subscriptions.
create or replace function posthaste.chart_names(p_queues text[], p_subscription text)
returns table (queue_id int, number smallint, queue text, subscription text, since timestamptz)
language sql stable rows 100 set search_path = pg_catalog, pg_temp as $$
  select q.id, u.number, q.name, u.name, date_trunc('hour', u.created_at, 'UTC')
    from posthaste.queue_settings q join posthaste.subscriptions u on u.queue_id = q.id
   where q.dropped_at is null and u.dropped_at is null and (p_queues is null or q.name = any (p_queues)) and (p_subscription is null or u.name = p_subscription)
$$;
