-- posthaste.token_hashes: the tokens by which a server identifies its callers. A server asks
-- about once a second while it is called, and caches the result.
-- Arguments: names of the tokens used since; their time of use is stored at most once in five
-- minutes.
-- Returns: the valid tokens with the SHA-256 of their secrets. A first row without a name says
-- that tokens are required: one was created here at some time.
-- Reads and updates: issued_tokens.
create or replace function posthaste.token_hashes(used text[] default '{}')
returns table (name text, hash bytea, scopes text[], queues text[])
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
  if cardinality(token_hashes.used) > 0 then
    -- A concurrent update is that of a server with the same value.
    update posthaste.issued_tokens t set last_used_at = date_trunc('minute', clock_timestamp())
     where t.id in (select x.id from posthaste.issued_tokens x
                     where x.name = any (token_hashes.used) and x.dropped_at is null
                       and (x.last_used_at is null or x.last_used_at < clock_timestamp() - interval '5 minutes')
                     order by x.id for update skip locked);
  end if;
  if exists (select from posthaste.issued_tokens) then
    return next;
  end if;
  return query
    select t.name, t.hash, t.scopes, t.queues from posthaste.issued_tokens t
     where t.dropped_at is null and (t.expires_at is null or t.expires_at > clock_timestamp());
end $$;
