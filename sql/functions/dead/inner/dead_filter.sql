-- posthaste.dead_filter: parses a filter of dead letters.
-- {"all": true} selects all of them. An empty filter is an error, because it may result from
-- missing values.
-- Arguments: queue, subscription (of that queue), kind, key, reference, term (one of its
-- terms), error (part of the last error's text, ignoring case), died_from and died_before
-- (times; from is included, before is not). Values must not be empty: a caller that meant one
-- queue must not get all.
-- Errors: PH400 and PH404 with the field. Reads: queue_settings, subscriptions.
create or replace function posthaste.dead_filter(p_filter jsonb)
returns posthaste.dead_filter language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  f posthaste.dead_filter;
  v_name text;
begin
  if p_filter = '{}' then
    raise exception using errcode = 'PH400', column = 'filter', message = 'the filter is empty',
      hint = '{"all": true} selects all dead letters';
  elsif p_filter = '{"all": true}' then
    return f;
  end if;
  perform posthaste.check_options(p_filter, array['queue', 'subscription', 'kind', 'key', 'reference', 'term', 'error', 'died_from', 'died_before'], '{}');
  for v_name in select jsonb_object_keys(p_filter) loop
    if coalesce(posthaste.option_text(p_filter, v_name), '') = '' then
      raise exception using errcode = 'PH400', column = v_name, message = format('%s of the filter must not be empty', v_name),
        hint = 'leave it out to filter by the other fields alone';
    end if;
  end loop;
  v_name := p_filter ->> 'subscription';
  if p_filter ? 'queue' then
    f.queue_id := posthaste.find_queue(p_filter ->> 'queue');
    if v_name is not null then
      f.subscription := (posthaste.find_subscription(p_filter ->> 'queue', v_name)).number;
    end if;
  elsif v_name is not null then
    raise exception using errcode = 'PH400', column = 'subscription', message = 'subscription needs a queue',
      hint = 'also set queue';
  end if;
  f.kind := p_filter ->> 'kind';
  f.key := p_filter ->> 'key';
  f.reference := p_filter ->> 'reference';
  f.term := p_filter ->> 'term';
  f.error := lower((p_filter ->> 'error') collate "C");
  f.died_from := posthaste.option_time(p_filter, 'died_from');
  f.died_before := posthaste.option_time(p_filter, 'died_before');
  return f;
end $$;
