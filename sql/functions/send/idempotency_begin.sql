-- posthaste.idempotency_begin: begins a request that may come again, for the HTTP
-- server: what it sends follows in the same transaction, then idempotency_end.
-- Arguments: scope (who asked for what), the caller's key, a digest of the
-- request.
-- Returns: the ids that it sent before; null if it is new.
-- Errors: PH422 the key was used for another request.
-- Locks: the key, until the transaction ends: who comes with the same one waits.
create or replace function posthaste.idempotency_begin(p_scope text, p_key text, p_request bytea)
returns bigint[] language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
  k posthaste.idempotency_keys;
begin
  perform pg_advisory_xact_lock(posthaste.lock_key(20, hashtextextended(p_scope || ' ' || p_key, 0)));
  -- In a statement of its own, which sees what the one before left.
  select * into k from posthaste.idempotency_keys x where x.scope = p_scope and x.key = p_key and x.until > clock_timestamp();
  if k.request <> p_request then
    raise exception using errcode = 'PH422', column = 'Idempotency-Key', message = 'the key was used for another request',
      hint = 'use a new key for each request, and the same only to repeat it unchanged';
  end if;
  return k.ids;
end $$;
