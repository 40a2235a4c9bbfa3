-- posthaste.idempotency_end: stores the ids of the messages that a request sent after
-- idempotency_begin in the same transaction.
-- Arguments: as there; the ids in order; for how many seconds they are kept; what became of
-- the messages, null if all were stored.
-- Inserts, updates: idempotency_keys.
create or replace function posthaste.idempotency_end(p_scope text, p_key text, p_request bytea, p_ids bigint[], p_seconds double precision, p_told jsonb default null)
returns void language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
  insert into posthaste.idempotency_keys as k (scope, key, request, ids, told, until)
  values (p_scope, p_key, p_request, p_ids, p_told, clock_timestamp() + make_interval(secs => p_seconds))
  on conflict (scope, key) do update set request = excluded.request, ids = excluded.ids, told = excluded.told, until = excluded.until;
end $$;
