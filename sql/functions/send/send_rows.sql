-- posthaste.send_rows: sends many messages given as parallel arrays, for clients
-- that batch. JSON payloads are checked by the client.
-- Arguments: null elements mean absent, and so do null arrays; delays in
-- seconds, from 0 to the year 9999; headers and terms as JSON; dedupe windows in seconds.
-- Returns: the ids in order. Errors: as send; the text names the message. PH400
-- unless all arrays begin at 1 and are as long as the payloads.
create or replace function posthaste.send_rows(p_queues text[], p_payloads bytea[], p_content_types text[], p_keys text[], p_kinds text[],
  p_headers jsonb[], p_references text[], p_terms jsonb[], p_delays double precision[], p_send_ats timestamptz[], p_traces text[], p_wake boolean,
  p_priorities smallint[] default null, p_dedupe_keys text[] default null, p_dedupe_windows double precision[] default null)
returns bigint[] language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
  if cardinality(p_payloads) = 0 then
    return '{}';
  elsif p_payloads is null or p_queues is null
     -- Null arrays compare to null, which <> any ignores.
     or 1 <> any (array[array_lower(p_queues, 1), array_lower(p_payloads, 1), array_lower(p_content_types, 1), array_lower(p_keys, 1), array_lower(p_kinds, 1),
              array_lower(p_headers, 1), array_lower(p_references, 1), array_lower(p_terms, 1), array_lower(p_delays, 1), array_lower(p_send_ats, 1), array_lower(p_traces, 1),
              array_lower(p_priorities, 1), array_lower(p_dedupe_keys, 1), array_lower(p_dedupe_windows, 1)])
     or cardinality(p_payloads) <> any (array[cardinality(p_queues), cardinality(p_payloads), cardinality(p_content_types), cardinality(p_keys), cardinality(p_kinds),
              cardinality(p_headers), cardinality(p_references), cardinality(p_terms), cardinality(p_delays), cardinality(p_send_ats), cardinality(p_traces),
              cardinality(p_priorities), cardinality(p_dedupe_keys), cardinality(p_dedupe_windows)]) then
    raise exception using errcode = 'PH400', column = 'payloads', message = 'all arrays must begin at 1 and have as many elements as the payloads';
  end if;
  return (posthaste.insert_entries(p_queues, p_payloads, p_content_types, p_keys, p_kinds, p_headers, p_references, p_terms,
    p_delays, p_send_ats, p_traces, p_wake, p_priorities, p_dedupe_keys, p_dedupe_windows)).ids;
end $$;
