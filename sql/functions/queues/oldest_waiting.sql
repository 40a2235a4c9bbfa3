-- posthaste.oldest_waiting: for each subscription the time since which the oldest message
-- waits that it may hand out now: when the message was sent, or became due.
-- Returns: one row for each subscription that has such a message.
-- Reads: queue_settings, claims, entries, cancelled, subscriptions.
create or replace function posthaste.oldest_waiting()
returns table (queue_id int, subscription int, since timestamptz) language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp as $$
declare
  s pg_snapshot := pg_current_snapshot();
  l posthaste.live := posthaste.live_slots();
begin
  return query
    select o.queue_id, o.subscription, min(o.since)
      from (select * from posthaste.oldest_fresh(s, l) union all select * from posthaste.oldest_due(s, l)) o
     group by o.queue_id, o.subscription;
end $$;
