-- posthaste.send_rows: sends many messages given as parallel arrays, for clients
-- that batch. JSON payloads are checked by the client.
-- Arguments: null elements mean absent, and so do null arrays; delays in seconds; headers and terms as JSON.
-- Returns: the ids in order. Errors: as send; the text names the message.
create or replace function posthaste.send_rows(p_queues text[], p_payloads bytea[], p_content_types text[], p_keys text[], p_kinds text[],
  p_headers jsonb[], p_references text[], p_terms jsonb[], p_delays double precision[], p_send_ats timestamptz[], p_traces text[], p_wake boolean)
returns bigint[] language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
  return posthaste.insert_entries(p_queues, p_payloads, p_content_types, p_keys, p_kinds, p_headers, p_references, p_terms,
    p_delays, p_send_ats, p_traces, p_wake);
end $$;
