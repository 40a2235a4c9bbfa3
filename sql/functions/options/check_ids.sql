-- posthaste.check_ids: refuses ids that are null or more than 10,000.
-- Returns: the ids. Errors: PH400 with the field message_ids.
create or replace function posthaste.check_ids(p_ids bigint[])
returns bigint[] language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
  perform posthaste.check_array(p_ids, 'message_ids');
  if p_ids is null or array_position(p_ids, null) is not null then
    raise exception using errcode = 'PH400', column = 'message_ids', message = 'message_ids must not be null';
  elsif cardinality(p_ids) > 10000 then
    raise exception using errcode = 'PH400', column = 'message_ids', message = format('a call takes at most 10000 ids, got %s', cardinality(p_ids)),
      hint = 'split the ids over several calls';
  end if;
  return p_ids;
end $$;
