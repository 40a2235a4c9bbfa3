-- posthaste.send_many: sends an array of messages {payload, key, headers, …} to one queue, in
-- the caller's transaction.
-- Options: defaults for all messages, as in posthaste.send; wake applies to the whole call, and
-- is not an option of one message. If one message is invalid, none is sent.
-- Returns: the message ids, in order. Errors: as send; the text names the message.
create or replace function posthaste.send_many(queue text, messages jsonb, options anycompatible default null::text)
returns setof bigint language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_given jsonb := posthaste.json_argument(options, 'options');
  m jsonb;
  v_options record;
  v_payload text;
  n int := 0;
  v_code text; v_field text; v_text text; v_hint text;
  v_wake boolean := posthaste.option_boolean(v_given, 'wake', true);
  v_queues text[] := '{}'; v_payloads bytea[] := '{}'; v_types text[] := '{}'; v_keys text[] := '{}'; v_kinds text[] := '{}';
  v_references text[] := '{}'; v_traces text[] := '{}';
  -- Null if no message has the option, which is the cheaper way of posthaste.insert_entries.
  v_headers jsonb[]; v_terms jsonb[]; v_delays float8[]; v_send_ats timestamptz[];
  v_priorities smallint[]; v_dedupe_keys text[]; v_dedupe_windows float8[]; v_uniques jsonb[];
begin
  if jsonb_typeof(messages) is distinct from 'array' then
    raise exception using errcode = 'PH400', column = 'messages', message = 'messages must be an array of objects';
  end if;
  perform posthaste.send_options(v_given, '{}');
  begin
    for m in select jsonb_array_elements(messages) loop
      n := n + 1;
      if jsonb_typeof(m) <> 'object' or not m ? 'payload' then
        raise exception using errcode = 'PH400', column = 'messages', message = 'a message must be an object with a payload';
      elsif m ? 'wake' then
        raise exception using errcode = 'PH400', column = 'wake', message = 'option ''wake'' applies to all messages together',
          hint = 'pass it in the options of send_many';
      end if;
      v_options := posthaste.send_options((coalesce(v_given, '{}') || (m - 'payload')) - 'wake', '{}');
      -- By subscripts, in place: concatenating two arrays copies both each time.
      v_queues[n] := queue;
      v_payload := (m -> 'payload')::text;
      if octet_length(v_payload) >= 250 then
        perform posthaste.check_json(m -> 'payload', v_payload);
      end if;
      v_payloads[n] := convert_to(v_payload, 'UTF8');
      v_types[n] := v_options.content_type;
      v_keys[n] := v_options.key;
      v_kinds[n] := v_options.kind;
      v_references[n] := v_options.reference;
      v_traces[n] := v_options.trace;
      if v_options.headers is not null then v_headers[n] := v_options.headers; end if;
      if v_options.terms is not null then v_terms[n] := v_options.terms; end if;
      if v_options.delay is not null then v_delays[n] := v_options.delay; end if;
      if v_options.send_at is not null then v_send_ats[n] := v_options.send_at; end if;
      if v_options.priority <> 0 then v_priorities[n] := v_options.priority; end if;
      if v_options.dedupe_key is not null then v_dedupe_keys[n] := v_options.dedupe_key; end if;
      if v_options.unique_options is not null then v_uniques[n] := v_options.unique_options; end if;
      if v_options.dedupe_window is not null then v_dedupe_windows[n] := v_options.dedupe_window; end if;
    end loop;
  exception when sqlstate 'PH400' or sqlstate 'PH501' then
    -- Around the whole loop: a subtransaction for each message would cost more than the rest.
    get stacked diagnostics v_code = returned_sqlstate, v_field = column_name, v_text = message_text, v_hint = pg_exception_hint;
    raise exception using errcode = v_code, column = v_field, hint = v_hint,
      message = format('message %s of %s: %s', n, jsonb_array_length(messages), v_text);
  end;
  if n = 0 then
    return;
  end if;
  return query select unnest((posthaste.insert_entries(v_queues, v_payloads, v_types, v_keys, v_kinds, v_headers, v_references, v_terms,
    v_delays, v_send_ats, v_traces, v_wake, v_priorities, v_dedupe_keys, v_dedupe_windows, v_uniques)).ids);
end $$;
-- The messages as text, to which literals and untyped parameters resolve.
create or replace function posthaste.send_many(queue text, messages text, options anycompatible default null::text)
returns setof bigint language sql volatile as $$
  select posthaste.send_many(queue, messages::jsonb, options)
$$;
-- The messages as json.
create or replace function posthaste.send_many(queue text, messages json, options anycompatible default null::text)
returns setof bigint language sql volatile as $$
  select posthaste.send_many(queue, messages::jsonb, options)
$$;
