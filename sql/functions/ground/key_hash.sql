-- posthaste.key_hash: the hash of a key. It chooses the key's lane and identifies the key
-- when running messages are counted. Two keys with the same hash would share their limits,
-- which is unlikely with 64 bits.
-- No SET: it is inlined into its caller.
create or replace function posthaste.key_hash(key text)
returns bigint language sql immutable parallel safe as
$$ select pg_catalog.hashtextextended(key, 0) $$;
