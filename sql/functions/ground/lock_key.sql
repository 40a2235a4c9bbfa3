-- posthaste.lock_key: the key of an advisory lock. The first two bytes ("PH") keep clear of
-- the keys of other programs; the next half byte names the kind of the locked object.
-- Arguments: family (1 reader, 3 bell, 4 doze, 5 worker, 6 maintenance, 7 queue,
--   8 request of a worker, 9 crash recovery of one worker,
--   10 look at ended leases of a subscription, 11 the skip of ids, 12 withdrawals of a queue,
--   13 a queue's settings, 15 migration, 20 idempotency key), id (its lower 44 bits
--   are used). Families above 15 also take a bit of the first two bytes ("PI").
-- Returns: bigint. Errors: none. Locks: none. Tables: none.
-- The body is parsed at creation, so that no search_path can change it, and has no SET, so
-- that it is inlined into its callers.
create or replace function posthaste.lock_key(family int, id bigint)
returns bigint language sql immutable parallel safe
return (20552::bigint << 48) | (family::bigint << 44) | (id & ((1::bigint << 44) - 1));
