-- posthaste.lane_event: appends an event for a keyed lane; posthaste.lane_events reads it.
-- Arguments: subscriber (queue id << 10 | subscription), lane, objects, the time from which
-- the event is seen. Its message id is 0 because it is not a message. Inserts: entries_other.
create or replace function posthaste.lane_event(p_subscriber bigint, p_lane int, p_objects jsonb, p_at timestamptz)
returns void language sql volatile set search_path = pg_catalog, pg_temp as $$
  insert into posthaste.entries_other (message_id, due_at, queue_id, lane, for_subscription, attempt, story, payload)
  values (0, p_at, (p_subscriber >> 10)::int, p_lane, (p_subscriber & 1023)::smallint, 0, p_objects, '') $$;
