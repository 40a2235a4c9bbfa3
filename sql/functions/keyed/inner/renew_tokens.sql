-- posthaste.renew_tokens: after the clock was set back, makes the keys of a lane that wait for
-- a token wait from the new time on.
-- Arguments: the queue, subscriber, lane; the time of the clock and the reader's time.
-- Called under the lane's lock. Updates: keys. Inserts: entries_other (events).
create or replace function posthaste.renew_tokens(q posthaste.queue_settings, p_subscriber bigint, p_lane int, p_now timestamptz, t timestamptz)
returns void language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  k record;
begin
  for k in update posthaste.keys z
              set tokens_at = p_now,
                  wake_at = p_now + make_interval(secs => greatest(greatest(1, least(q.key_burst / 2, q.key_rate / 20)) - z.tokens, 0) / q.key_rate)
            where z.subscriber = p_subscriber and z.lane = p_lane and z.lane >= 0 and z.tokens_at > p_now and z.wake_at > p_now and z.tokens is not null
           returning z.key, z.wake_at loop
    perform posthaste.wake_key(p_subscriber, p_lane, k.key, k.wake_at, posthaste.token_time(t), t);
  end loop;
end $$;
