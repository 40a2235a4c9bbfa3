-- posthaste.ring: the sender's part of the doorbell. Every send calls it once in its own
-- transaction. It notifies only if a worker sleeps, because NOTIFY takes a lock on the whole
-- database at commit.
-- Arguments: queue id. Returns: nothing. Errors: none.
-- Locks: the bell key, shared, without waiting, until the transaction ends; the doze key,
--   shared, without waiting, released within the same expression (with two statements, a
--   cancellation between them would leave the session holding it).
-- Tables: none. Sends: channel posthaste, the queue's id as text.
-- No SET, and only qualified names and grammar: it is inlined into its caller.
create or replace function posthaste.ring(queue_id int)
returns void language sql volatile as $$
  select case
    when pg_catalog.pg_try_advisory_xact_lock_shared(posthaste.bell_key(queue_id))
     and pg_catalog.pg_try_advisory_lock_shared(posthaste.doze_key(queue_id))
     and pg_catalog.pg_advisory_unlock_shared(posthaste.doze_key(queue_id))
    then null
    else pg_catalog.pg_notify('posthaste', queue_id::pg_catalog.text)
  end
$$;
