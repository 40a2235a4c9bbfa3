-- posthaste.send_options: checks a message's options and returns them in columns.
-- Errors: PH400 with the option's name; PH501 for planned ones.
create or replace function posthaste.send_options(p_options jsonb, p_more text[],
  out content_type text, out key text, out kind text, out headers jsonb, out reference text, out terms jsonb,
  out delay double precision, out send_at timestamptz, out trace text, out wake boolean,
  out priority smallint, out dedupe_key text, out dedupe_window double precision, out unique_options jsonb)
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
  wake := true;
  if p_options is null or p_options = '{}' then
    return;
  end if;
  perform posthaste.check_options(p_options,
    array['key', 'kind', 'headers', 'reference', 'terms', 'content_type', 'delay', 'send_at', 'wake', 'priority',
          'dedupe_key', 'dedupe_window', 'max_attempts', 'timeout', 'backoff', 'unique'] || p_more, '{}');
  content_type := posthaste.option_text(p_options, 'content_type');
  key := posthaste.option_text(p_options, 'key');
  kind := posthaste.option_text(p_options, 'kind');
  reference := posthaste.option_text(p_options, 'reference');
  headers := nullif(p_options -> 'headers', 'null');
  terms := nullif(p_options -> 'terms', 'null');
  if jsonb_typeof(headers -> 'traceparent') = 'string' then
    trace := nullif(headers ->> 'traceparent', '');
    headers := case when trace is null then headers else nullif(headers - 'traceparent', '{}') end;
  end if;
  if headers ? '' then
    raise exception using errcode = 'PH400', column = 'headers', message = 'a header has an empty name';
  end if;
  if p_options ?| '{max_attempts,timeout,backoff}' then
    headers := coalesce(headers, '{}') || jsonb_build_object('', posthaste.option_attempts(p_options));
    headers := case when headers -> '' = '{}' then nullif(headers - '', '{}') else headers end;
  end if;
  delay := extract(epoch from posthaste.option_interval(p_options, 'delay'));
  wake := posthaste.option_boolean(p_options, 'wake', true);
  priority := posthaste.option_int(p_options, 'priority', 0, 3);
  dedupe_key := nullif(posthaste.option_text(p_options, 'dedupe_key'), '');
  dedupe_window := extract(epoch from posthaste.option_interval(p_options, 'dedupe_window'));
  if dedupe_window is not null and dedupe_key is null then
    raise exception using errcode = 'PH400', column = 'dedupe_window', message = 'option ''dedupe_window'' needs a dedupe_key';
  end if;
  if p_options -> 'unique' not in ('null', 'false') then
    unique_options := posthaste.unique_option(p_options -> 'unique');
  end if;
  send_at := posthaste.option_time(p_options, 'send_at');
  if send_at >= posthaste.last_time() then
    raise exception using errcode = 'PH400', column = 'send_at', message = format('option ''send_at'' must be a time before the last day of the year 9999, got %s', send_at);
  end if;
  if delay is not null and send_at is not null then
    raise exception using errcode = 'PH400', column = 'send_at', message = 'options ''delay'' and ''send_at'' exclude each other';
  end if;
end $$;
