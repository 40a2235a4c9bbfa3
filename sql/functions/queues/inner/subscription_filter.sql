-- posthaste.subscription_filter: checks a filter as users write it and returns the normal form
-- that posthaste.passes reads: sorted lists of words everywhere.
-- Arguments: {"kind": word or words, "headers": {"name": word or words}}. A message passes if
-- its kind is one of the words and each named header has one of its words. No message has an
-- empty kind, so an empty word would match nothing.
-- Returns: null for null. Errors: PH400 with the field filter.
create or replace function posthaste.subscription_filter(p_filter jsonb)
returns jsonb language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
  v_path text[];
  v_words jsonb;
  v_out jsonb := '{}';
  h record;
begin
  if p_filter is null or jsonb_typeof(p_filter) = 'null' then
    return null;
  end if;
  if jsonb_typeof(p_filter) <> 'object' or p_filter = '{}' or p_filter - array['kind', 'headers'] <> '{}'
     or p_filter ? 'headers' and (jsonb_typeof(p_filter -> 'headers') <> 'object' or p_filter -> 'headers' = '{}') then
    raise exception using errcode = 'PH400', column = 'filter', message = format('invalid filter: %s', left(p_filter::text, 200)),
      hint = 'for example {"kind": ["created", "paid"], "headers": {"region": "eu"}}';
  end if;
  for h in select array['kind'] as path, p_filter -> 'kind' as words where p_filter ? 'kind'
           union all
           select array['headers', x.key], x.value from jsonb_each(p_filter -> 'headers') x loop
    v_path := h.path;
    v_words := case when jsonb_typeof(h.words) = 'string' then jsonb_build_array(h.words) else h.words end;
    if jsonb_typeof(v_words) <> 'array' or v_words = '[]'
       or exists (select from jsonb_array_elements(v_words) w where jsonb_typeof(w) <> 'string' or octet_length(w #>> '{}') > 16384 or w = '""' and v_path = array['kind']) then
      raise exception using errcode = 'PH400', column = 'filter',
        message = format('the filter needs a word or a list of words for %s, got %s', array_to_string(v_path, ' '), left(h.words::text, 200));
    end if;
    if v_path = array['headers', 'traceparent'] then
      raise exception using errcode = 'PH400', column = 'filter', message = 'a filter cannot use the header traceparent, which differs in every trace',
        hint = 'send messages with another header to filter by';
    end if;
    v_words := (select jsonb_agg(distinct w order by w) from jsonb_array_elements(v_words) w);
    if v_path[1] = 'headers' and not v_out ? 'headers' then
      v_out := v_out || '{"headers": {}}';
    end if;
    v_out := jsonb_set(v_out, v_path, v_words);
  end loop;
  if octet_length(v_out::text) > 65536 then
    raise exception using errcode = 'PH400', column = 'filter', message = 'the filter is longer than 64 KiB';
  end if;
  return v_out;
end $$;
