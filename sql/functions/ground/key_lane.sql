-- posthaste.key_lane: the lane of a key. Without a key: a random lane.
-- No SET: it is inlined into its caller.
create or replace function posthaste.key_lane(key text, lanes int)
returns smallint language sql volatile parallel safe as
$$ select case when lanes = 1 then 0 when key is null then pg_catalog.floor(pg_catalog.random() * lanes)
          else (pg_catalog.hashtextextended(key, 0) & 9223372036854775807) % lanes end::smallint $$;
