-- posthaste.reader_key: the number of a reader, one (subscription, lane, track).
-- Arguments: queue id, subscription number, lane, track (0 fresh, 1 due).
-- Returns: bigint below 2^40. reader >> 10 is the subscriber (queue and subscription).
create or replace function posthaste.reader_key(queue_id int, subscription int, lane int, track int)
returns bigint language sql immutable parallel safe as
$$ select (queue_id::bigint << 20) | (subscription::bigint << 10) | (lane::bigint << 1) | track $$;
