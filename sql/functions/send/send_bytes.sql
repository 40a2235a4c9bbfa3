-- posthaste.send_bytes: sends a message with a payload of bytes, in the caller's
-- transaction: it leaves when that commits, and never if it rolls back.
-- Options: as of posthaste.send; content_type is application/octet-stream
-- unless given; application/json, with parameters too, and what ends in +json must be
-- valid JSON in UTF-8, without \u0000.
-- Returns: the message id. Errors: PH400, PH404, PH413 with the field.
create or replace function posthaste.send_bytes(queue text, payload bytea, options jsonb default '{}')
returns bigint language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  o record;
  v_json jsonb;
begin
  o := posthaste.send_options(options, '{}');
  o.content_type := coalesce(o.content_type, 'application/octet-stream');
  -- As IsJSON in Go.
  if btrim(split_part(lower(o.content_type collate "C"), ';', 1)) ~ '^(application/json|.*[+]json|)$' then
    begin
      v_json := convert_from(payload, 'UTF8')::jsonb;
    exception when data_exception or syntax_error or program_limit_exceeded then
      raise exception using errcode = 'PH400', column = 'payload', message = 'payload is not valid JSON in UTF-8, though its content type says so',
        hint = 'give another content type, such as application/octet-stream';
    end;
    perform posthaste.check_json(v_json, v_json::text);
  end if;
  return posthaste.send_row(queue, payload, o.content_type, o.key, o.kind, o.headers, o.reference, o.terms, o.delay, o.send_at, o.trace, o.wake,
    o.priority, o.dedupe_key, o.dedupe_window);
end $$;
