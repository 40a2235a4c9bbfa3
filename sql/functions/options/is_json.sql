-- posthaste.is_json: whether a content type is that of JSON: application/json, with or without
-- parameters, a type that ends in +json, or an empty one. The same rule as IsJSON in Go.
create or replace function posthaste.is_json(p_content_type text)
returns boolean language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
  return btrim(split_part(lower(p_content_type collate "C"), ';', 1)) ~ '^(application/json|.*[+]json|)$';
end $$;
