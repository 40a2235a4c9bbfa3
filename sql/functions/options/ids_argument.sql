-- posthaste.ids_argument: ids that a caller gives as text: one id (5), an array ({5,6}),
-- or a list (5,6), which a driver of JavaScript makes of an array.
-- Arguments: the text; the parameter's name. Returns: the ids; null for null.
-- Errors: PH400 with that name.
create or replace function posthaste.ids_argument(p_ids text, p_name text)
returns bigint[] language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
  return case when p_ids ~ '^\s*[[{]' then p_ids::bigint[] when p_ids ~ ',' then ('{' || p_ids || '}')::bigint[] when p_ids is not null then array[p_ids::bigint] end;
exception when data_exception then
  raise exception using errcode = 'PH400', column = p_name, message = format('%s must be an id or an array of ids, got %L', p_name, left(p_ids, 100)),
    hint = 'for example 5, {5,6} or array[5, 6]';
end $$;
