-- posthaste.plain_headers: whether headers are an object whose values are all
-- strings. For a check of entries, and not in SQL: inlined, its text would be read
-- anew by every statement that inserts.
create or replace function posthaste.plain_headers(headers jsonb)
returns boolean language plpgsql immutable parallel safe set search_path = pg_catalog, pg_temp as $$
begin
  return jsonb_typeof(headers) = 'object' and not jsonb_path_exists(headers, 'strict $.* ? (@.type() != "string")');
end $$;
