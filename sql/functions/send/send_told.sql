-- posthaste.send_told: sends messages as posthaste.send_rows does, and tells what became of each.
-- For clients, and only for calls with a dedupe key or a unique key: its result costs more.
-- Arguments: as posthaste.send_rows; the options unique of the messages.
-- Returns: a row for each message, in order, as posthaste.send_unique. Errors: as send_rows.
create or replace function posthaste.send_told(p_queues text[], p_payloads bytea[], p_content_types text[], p_keys text[], p_kinds text[],
  p_headers jsonb[], p_references text[], p_terms jsonb[], p_delays double precision[], p_send_ats timestamptz[], p_traces text[], p_wake boolean,
  p_priorities smallint[], p_dedupe_keys text[], p_dedupe_windows double precision[], p_uniques jsonb[])
returns table (id bigint, duplicate boolean, replaced boolean, state text)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
  return query
    select x.id, coalesce(s.told[x.n] <> 'replaced', false), coalesce(s.told[x.n] = 'replaced', false), nullif(nullif(s.told[x.n], ''), 'replaced')
      from posthaste.insert_entries(p_queues, p_payloads, p_content_types, p_keys, p_kinds, p_headers, p_references, p_terms,
             p_delays, p_send_ats, p_traces, p_wake, p_priorities, p_dedupe_keys, p_dedupe_windows, p_uniques) s
     cross join lateral unnest(s.ids) with ordinality x (id, n)
     order by x.n;
end $$;
