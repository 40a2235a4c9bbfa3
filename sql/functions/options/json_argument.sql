-- posthaste.json_argument: an argument that callers give as JSON of any type: text, varchar,
-- json or jsonb. Public functions declare it anycompatible, to which PostgreSQL resolves a
-- literal and an untyped parameter as text.
-- Arguments: the value; the parameter's name. Returns: the JSON; null for null.
-- Errors: PH400 for another type; 22P02 for text that is not JSON.
create or replace function posthaste.json_argument(p_value anyelement, p_name text)
returns jsonb language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
  -- First: the cast of a user's own type may be a function of that user, which would run here
  -- with the rights of the schema's owner.
  if pg_typeof(p_value) not in ('text'::regtype, 'varchar'::regtype, 'json'::regtype, 'jsonb'::regtype) then
    raise exception using errcode = 'PH400', column = p_name, message = format('%s must be JSON of type jsonb, json or text, got %s', p_name, pg_typeof(p_value));
  end if;
  return p_value::text::jsonb;
end $$;
