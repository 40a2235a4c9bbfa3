-- posthaste.no_wake: whether this call must not notify, as its option wake says. Only then
-- can the transaction be prepared.
-- Arguments: none. Returns: boolean. Locks: none. Tables: none.
create or replace function posthaste.no_wake()
returns boolean language sql stable as $$ select pg_catalog.current_setting('posthaste.no_wake', true) is not distinct from 'yes' $$;
