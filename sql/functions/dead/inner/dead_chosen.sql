-- posthaste.dead_chosen: which dead letters are to be replayed or discarded, by
-- ids or by a filter; one of the two must be given.
-- Returns: the filter (of ids: any) and the ids. By filter they are the newest
-- below before, at most so many, and posthaste.list_before says where to go on;
-- empty when there are no more.
-- {"all": true} as the filter means every one; a filter that says nothing is refused,
-- because it is what comes of values that are missing.
-- Errors: PH400, PH404 with the field. Reads: dead_letter_entries.
create or replace function posthaste.dead_chosen(p_ids bigint[], p_filter jsonb, p_before bigint, p_max int, out f posthaste.dead_filter, out ids bigint[])
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v record;
begin
  perform set_config('posthaste.list_before', '', true);
  if p_filter is null then
    ids := posthaste.check_ids(p_ids);
    return;
  elsif p_ids is not null then
    raise exception using errcode = 'PH400', column = 'filter', message = 'message_ids and filter exclude each other';
  elsif p_max is null or p_max not between 1 and 10000 then
    raise exception using errcode = 'PH400', column = 'limit', message = format('1 to 10000 dead letters at a time, and %s are wanted', p_max),
      hint = 'go on in several calls';
  end if;
  if p_filter = '{}' then
    raise exception using errcode = 'PH400', column = 'filter', message = 'the filter does not say which dead letters',
      hint = '{"all": true} means every one';
  end if;
  f := posthaste.dead_filter(case when p_filter = '{"all": true}' then '{}' else p_filter end);
  v := posthaste.dead_found(f, null, p_before, p_max);
  ids := v.message_ids;
  perform set_config('posthaste.list_before', coalesce(v.cut_at, case when cardinality(ids) >= p_max then ids[p_max] end)::text, true);
end $$;
