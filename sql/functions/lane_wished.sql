-- posthaste.lane_wished: whether a lane is to be left to another worker: one that is
-- alive and said so within the last 5 s.
-- Arguments: subscriber, lane, who asks (null: receivers).
-- Reads: lane_wishes, registrations.
create or replace function posthaste.lane_wished(p_subscriber bigint, p_lane int, p_holder bigint)
returns boolean language sql volatile set search_path = pg_catalog, pg_temp as $$
  select exists (
    select from posthaste.lane_wishes y
     where y.subscriber = p_subscriber and y.lane = p_lane and y.worker <> coalesce(p_holder, 0)
       and y.at > clock_timestamp() - interval '5 seconds'
       and (y.worker = 0 or exists (select from posthaste.registrations r where r.id = y.worker and r.lost_at is null and r.ended_at is null))) $$;
