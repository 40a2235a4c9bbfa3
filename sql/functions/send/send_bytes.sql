-- posthaste.send_bytes: sends a message with a binary payload in the caller's transaction: the
-- message is sent if the transaction commits, and is not if it rolls back.
-- Options: those of posthaste.send; the default content_type is application/octet-stream.
-- Payloads of type application/json, with or without parameters, and of types that end in
-- +json must be valid JSON in UTF-8, without \u0000.
-- Returns: the message id. Errors: PH400, PH404, PH413 with the field.
create or replace function posthaste.send_bytes(queue text, payload bytea, options anycompatible default null::text)
returns bigint language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_options record;
  v_json jsonb;
begin
  v_options := posthaste.send_options(posthaste.json_argument(options, 'options'), '{}');
  v_options.content_type := coalesce(v_options.content_type, 'application/octet-stream');
  if posthaste.is_json(v_options.content_type) then
    begin
      v_json := convert_from(payload, 'UTF8')::jsonb;
    exception when data_exception or syntax_error or program_limit_exceeded then
      raise exception using errcode = 'PH400', column = 'payload', message = 'payload is not valid JSON in UTF-8, though its content type says so',
        hint = 'give another content type, such as application/octet-stream';
    end;
    perform posthaste.check_json(v_json, v_json::text);
  end if;
  if v_options.unique_options is not null then
    return (select t.id from posthaste.send_told(array[queue], array[payload], array[v_options.content_type], array[v_options.key], array[v_options.kind],
      case when v_options.headers is not null then array[v_options.headers] end, array[v_options.reference], case when v_options.terms is not null then array[v_options.terms] end,
      array[v_options.delay], array[v_options.send_at], array[v_options.trace], v_options.wake,
      case when v_options.priority <> 0 then array[v_options.priority] end, case when v_options.dedupe_key is not null then array[v_options.dedupe_key] end, array[v_options.dedupe_window],
      array[v_options.unique_options]) t);
  end if;
  return posthaste.send_row(queue, payload, v_options.content_type, v_options.key, v_options.kind, v_options.headers, v_options.reference, v_options.terms, v_options.delay, v_options.send_at, v_options.trace, v_options.wake,
    v_options.priority, v_options.dedupe_key, v_options.dedupe_window);
end $$;
