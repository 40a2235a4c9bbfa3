-- posthaste.token_queues: the option queues of a new token, checked. The queues
-- need not exist yet.
-- Returns: the names, null for all queues. Errors: PH400.
create or replace function posthaste.token_queues(p_options jsonb)
returns text[] language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
  q jsonb := nullif(p_options -> 'queues', 'null');
begin
  if q is null then
    return null;
  end if;
  if jsonb_typeof(q) <> 'array' then
    raise exception using errcode = 'PH400', column = 'queues', message = 'option ''queues'' must be an array of names of queues';
  end if;
  if jsonb_array_length(q) not between 1 and 100
     or exists (select from jsonb_array_elements(q) x where jsonb_typeof(x) <> 'string' or x #>> '{}' !~ '^[a-z0-9_.-]{1,63}$') then
    raise exception using errcode = 'PH400', column = 'queues', message = 'option ''queues'' must be 1 to 100 names of queues',
      hint = 'leave it out for all queues';
  end if;
  return array(select distinct x from jsonb_array_elements_text(q) x order by 1);
end $$;
