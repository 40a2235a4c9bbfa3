-- posthaste.plain_headers: whether headers are an object whose values are all strings, and none
-- has the empty name, which stands for options of the message's attempts.
-- Not in SQL: inlined, it would be prepared again in each transaction that sends.
create or replace function posthaste.plain_headers(headers jsonb)
returns boolean language plpgsql immutable parallel safe set search_path = pg_catalog, pg_temp as $$
begin
  return jsonb_typeof(headers) = 'object' and not jsonb_path_exists(headers, 'strict $.* ? (@.type() != "string")') and not headers ? '';
end $$;
