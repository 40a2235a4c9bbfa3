-- posthaste.found_terms: the terms that a handler found for a message. Arguments: an array of
-- strings as JSON text, or null.
-- Returns: the array; null if it is empty. Errors: PH400, and those of JSON.
create or replace function posthaste.found_terms(p_terms text)
returns jsonb language plpgsql immutable
set search_path = pg_catalog, pg_temp as $$
declare
  v_terms jsonb := p_terms::jsonb;
begin
  if jsonb_typeof(v_terms) <> 'array' or jsonb_path_exists(v_terms, 'strict $[*] ? (@.type() != "string")') then
    raise exception using errcode = 'PH400', column = 'terms', message = 'terms must be an array of strings';
  elsif jsonb_array_length(v_terms) > 1000 then
    raise exception using errcode = 'PH400', column = 'terms', message = format('terms must have at most 1,000 strings, got %s', jsonb_array_length(v_terms));
  elsif exists (select from jsonb_array_elements_text(v_terms) t where octet_length(t) > 255) then
    raise exception using errcode = 'PH400', column = 'terms', message = 'terms must be strings of at most 255 bytes';
  end if;
  return nullif(v_terms, '[]');
end $$;
