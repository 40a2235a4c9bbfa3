-- posthaste.doze_key: the advisory lock that says that a worker would sleep if no sender
-- were open. A sender that got the bell probes it shared; the worker holds it exclusively
-- while it cannot get the bell.
-- Arguments: queue id. Returns: bigint. Errors: none. Locks: none. Tables: none.
create or replace function posthaste.doze_key(queue_id int)
returns bigint language sql immutable parallel safe as
$$ select posthaste.lock_key(4, queue_id) $$;
