-- posthaste.doze_key: the advisory lock that says "somebody would sleep, were it
-- not for a sender that is still open". Senders that got the bell probe it
-- shared, the worker holds it exclusively while it is refused the bell.
-- Arguments: queue id. Returns: bigint. Errors: none. Locks: none. Tables: none.
create or replace function posthaste.doze_key(queue_id int)
returns bigint language sql immutable parallel safe as
$$ select posthaste.lock_key(4, queue_id) $$;
