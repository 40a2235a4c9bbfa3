-- posthaste.split_payload: a payload as JSON if its content type says so, and else as bytes.
-- Arguments: the payload, its content type. Returns: payload_json or payload; the other is null.
-- JSON that jsonb cannot hold stays bytes: otherwise the message could not be received.
create or replace function posthaste.split_payload(p_payload bytea, p_content_type text, out payload_json jsonb, out payload bytea)
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
  if posthaste.is_json(p_content_type) then
    payload_json := convert_from(p_payload, 'UTF8')::jsonb;
  else
    payload := p_payload;
  end if;
exception when data_exception or syntax_error or program_limit_exceeded then
  payload := p_payload;
end $$;
