-- posthaste.unique_key: the unique key of a message as posthaste.unique_keys has it: = and the
-- sender's key, or # and a hash of the kind and the payload. JSON is hashed as jsonb, so that
-- spaces and the order of fields do not matter.
create or replace function posthaste.unique_key(p_key text, p_kind text, p_content_type text, p_payload bytea)
returns text language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
  if p_key is not null then
    return '=' || p_key;
  end if;
  if coalesce(nullif(p_content_type, ''), 'application/json') = 'application/json' then
    p_payload := convert_to(convert_from(p_payload, 'UTF8')::jsonb::text, 'UTF8');
  end if;
  return '#' || encode(sha256(convert_to(coalesce(p_kind, '') || e'\n', 'UTF8') || p_payload), 'hex');
end $$;
