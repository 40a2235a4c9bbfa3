-- posthaste.key_hash: a number for a key, by which its lane is chosen and runs of
-- it are counted. Two keys with the same number would share their limits; of 64
-- bits that is no concern.
-- No SET: it is inlined into its caller.
create or replace function posthaste.key_hash(key text)
returns bigint language sql immutable parallel safe as
$$ select pg_catalog.hashtextextended(key, 0) $$;
