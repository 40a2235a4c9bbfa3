-- posthaste.next_token: when the next key of a lane that waits for a token gets one. It is
-- used only if the clock was set back: otherwise events tell it, without a search among all
-- keys. Arguments: subscriber, lane; after which time (null: any). Reads: keys.
create or replace function posthaste.next_token(p_subscriber bigint, p_lane int, p_after timestamptz)
returns timestamptz language sql volatile set search_path = pg_catalog, pg_temp as $$
  select min(z.wake_at) from posthaste.keys z
   where z.subscriber = p_subscriber and z.lane = p_lane and z.lane >= 0 and z.blocked and z.paused_at is null and z.stopped_by is null
     and (p_after is null or z.wake_at > p_after) $$;
