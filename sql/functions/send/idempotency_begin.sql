-- posthaste.idempotency_begin: begins an idempotent request for the HTTP server. Its sends
-- follow in the same transaction, then idempotency_end.
-- Arguments: scope (the token and the operation), the caller's key, a digest of the request.
-- Returns: the ids and the results of an earlier request with the key; null if the key is new.
-- Errors: PH422 if the key was used for a different request.
-- Locks: the key, until the transaction ends. Requests with the same key wait.
create or replace function posthaste.idempotency_begin(p_scope text, p_key text, p_request bytea, out ids bigint[], out told jsonb)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  k posthaste.idempotency_keys;
begin
  perform pg_advisory_xact_lock(posthaste.lock_key(20, hashtextextended(p_scope || ' ' || p_key, 0)));
  -- In a statement of its own, which sees the row of the transaction that it waited for.
  select * into k from posthaste.idempotency_keys x where x.scope = p_scope and x.key = p_key and x.until > clock_timestamp();
  if k.request <> p_request then
    raise exception using errcode = 'PH422', column = 'Idempotency-Key', message = 'the key was used for a different request',
      hint = 'use a new key for each request, and the same key only to repeat a request unchanged';
  end if;
  ids := k.ids;
  told := k.told;
end $$;
