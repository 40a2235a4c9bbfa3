-- posthaste.wake_key: appends the event by which a key is looked at when it has its next token.
-- After the clock was set back, an event for a time that a reader has seen already would be
-- read at once. In this case posthaste.claim_keyed looks for the keys whose time came, and the
-- event is for the time when the clock has caught up.
-- Arguments: subscriber, lane, key; when it has its token; the time of tokens and the
-- reader's. Inserts: entries_other (events).
create or replace function posthaste.wake_key(p_subscriber bigint, p_lane int, p_key text, p_at timestamptz, p_now timestamptz, t timestamptz)
returns void language sql volatile set search_path = pg_catalog, pg_temp as $$
  select posthaste.lane_event(p_subscriber, p_lane, jsonb_build_array(jsonb_build_object('key', p_key)),
                              case when p_now < t then greatest(p_at, t + interval '1 millisecond') else p_at end) $$;
