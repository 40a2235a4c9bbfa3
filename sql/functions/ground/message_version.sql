-- posthaste.message_version: the version of a message's content, which changes with each edit of
-- it. Its priority and its due time are no part of it. Null without a payload.
create or replace function posthaste.message_version(content_type text, key text, kind text, headers jsonb, reference text, terms text[], payload bytea)
returns text language plpgsql immutable parallel safe set search_path = pg_catalog, pg_temp as $$
begin
  return case when payload is not null then
    md5(jsonb_build_array(coalesce(content_type, 'application/json'), key, kind, coalesce(headers, '{}'), reference, coalesce(to_jsonb(terms), '[]'), encode(sha256(payload), 'hex'))::text) end;
end $$;
