-- posthaste.check_name: refuses names that a queue, a subscription, a schedule or a token
-- cannot have; no URL's path can have . or .. as a part.
-- Arguments: the name, what has it, the field that the error names. Errors: PH400.
create or replace function posthaste.check_name(p_name text, p_what text, p_field text default 'name')
returns void language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
  if p_name is null or p_name !~ '^[a-z0-9_.-]{1,63}$' or p_name in ('.', '..') then
    raise exception using errcode = 'PH400', column = p_field, message = format('%s name %L is not allowed', p_what, p_name),
      hint = '1 to 63 of a-z, 0-9, _, - and ., but not . or .. alone';
  end if;
end $$;
