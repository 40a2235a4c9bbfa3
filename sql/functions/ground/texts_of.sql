-- posthaste.texts_of: the strings of a JSON array; null for null.
create or replace function posthaste.texts_of(p_texts jsonb)
returns text[] language plpgsql immutable parallel safe set search_path = pg_catalog, pg_temp as $$
begin
  return case when p_texts is not null then array(select jsonb_array_elements_text(p_texts)) end;
end $$;
