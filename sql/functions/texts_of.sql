-- posthaste.texts_of: the strings of a JSON array.
create or replace function posthaste.texts_of(p_texts jsonb)
returns text[] language plpgsql immutable strict parallel safe set search_path = pg_catalog, pg_temp as $$
begin
  return array(select jsonb_array_elements_text(p_texts));
end $$;
