-- posthaste.check_array: refuses arrays of more than one dimension, for which PostgreSQL's
-- own functions would raise a different error. Errors: PH400 with the name.
create or replace function posthaste.check_array(p_array anyarray, p_name text)
returns void language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
  if array_ndims(p_array) > 1 then
    raise exception using errcode = 'PH400', column = p_name, message = format('%s must be an array of one dimension, got %s dimensions', p_name, array_ndims(p_array));
  end if;
end $$;
