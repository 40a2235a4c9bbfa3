-- posthaste.words_of: the search words of a message: its reference and its terms, which
-- differ in their first letter.
create or replace function posthaste.words_of(p_reference text, p_terms text[])
returns text[] language plpgsql immutable parallel safe set search_path = pg_catalog, pg_temp as $$
begin
  return array_remove(array['r' || p_reference], null) || array(select distinct 't' || t from unnest(p_terms) t);
end $$;
