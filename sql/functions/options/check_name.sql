-- posthaste.check_name: refuses invalid names of queues, subscriptions, schedules and tokens.
-- The names . and .. cannot be a part of a URL's path.
-- Arguments: the name, the kind of its object, the field for the error. Errors: PH400.
create or replace function posthaste.check_name(p_name text, p_what text, p_field text default 'name')
returns void language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
  if p_name is null or p_name !~ '^[a-z0-9_.-]{1,63}$' or p_name in ('.', '..') then
    raise exception using errcode = 'PH400', column = p_field, message = format('%s name %L is not allowed', p_what, p_name),
      hint = 'a name consists of 1 to 63 characters a-z, 0-9, _, - and ., and is not . or ..';
  end if;
end $$;
