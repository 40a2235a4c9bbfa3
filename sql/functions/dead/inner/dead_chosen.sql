-- posthaste.dead_chosen: selects the dead letters to replay or discard, by ids or by a filter;
-- one of the two must be given.
-- Returns: the filter (for ids: any) and the ids. By filter they are the newest below before, at
-- most max, and posthaste.list_before has the id to continue with, empty if there are no more.
-- Errors: PH400, PH404 with the field. Reads: dead_letter_entries.
create or replace function posthaste.dead_chosen(p_ids bigint[], p_filter jsonb, p_before bigint, p_max bigint, out f posthaste.dead_filter, out ids bigint[])
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
    raise exception using errcode = 'PH400', column = 'limit', message = format('a call takes 1 to 10000 dead letters, not %s', p_max),
      hint = 'split them over several calls';
  end if;
  f := posthaste.dead_filter(p_filter);
  v := posthaste.dead_found(f, null, p_before, p_max::int);
  ids := v.message_ids;
  perform set_config('posthaste.list_before', coalesce(v.cut_at, case when cardinality(ids) >= p_max then ids[p_max] end)::text, true);
end $$;
