-- posthaste.bell_key: the advisory lock that says that a worker sleeps. A sender tries it
-- shared for its transaction, a worker that wants to sleep tries it exclusively for its
-- session.
-- Arguments: queue id. Returns: bigint. Errors: none. Locks: none. Tables: none.
create or replace function posthaste.bell_key(queue_id int)
returns bigint language sql immutable parallel safe as
$$ select posthaste.lock_key(3, queue_id) $$;
