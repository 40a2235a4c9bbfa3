-- posthaste.insert_entries: checks messages for one queue each and appends them.
-- Arguments: parallel arrays, null if no message has that; payloads are bytes already; due times absolute, or
-- delays in seconds; null content type means JSON. wake: ring the doorbell.
-- Returns: the ids in order.
-- Errors: PH400 PH404 PH413 with the field. Locks: each queue's key, shared.
-- Inserts: entries.
create or replace function posthaste.insert_entries(p_queues text[], p_payloads bytea[], p_content_types text[], p_keys text[], p_kinds text[],
  p_headers jsonb[], p_references text[], p_terms jsonb[], p_delays double precision[], p_send_ats timestamptz[], p_traces text[], p_wake boolean)
returns bigint[] language plpgsql volatile 
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set jit = off as $$
declare
  v_names text[];
  v_queues int[];
  v_lanes int[];
  v_most int[];
  v_name text;
  q posthaste.queue_settings;
  v_of int[];
  v_bad int;
  v_fault text;
  v_ids bigint[];
  v_now timestamptz := clock_timestamp();
begin
  if p_queues[1] = all (p_queues) then
    v_names := p_queues[1:1];
  else
    v_names := array(select distinct x from unnest(p_queues) x order by x);
  end if;
  foreach v_name in array v_names loop
    -- Dropping takes this key exclusively: it waits for the senders in flight.
    perform pg_advisory_xact_lock_shared(posthaste.lock_key(7, hashtext(v_name)));
    select * into q from posthaste.queue_settings x where x.name = v_name and x.dropped_at is null;
    if q.id is null then
      raise exception using errcode = 'PH404', column = 'queue', message = format('queue %L does not exist', v_name),
        hint = format('create it: select posthaste.create_queue(%L)', v_name);
    end if;
    v_queues := v_queues || q.id;
    v_lanes := v_lanes || q.lanes::int;
    v_most := v_most || q.max_payload;
  end loop;
  if cardinality(v_names) > 1 then
    v_of := array(select array_position(v_names, x) from unnest(p_queues) x);
  end if;
  -- By expressions, for a query would cost more to start than to run.
  for n in 1..cardinality(p_payloads) loop
    v_fault := case when p_payloads[n] is null then 'payload'
                    when octet_length(p_payloads[n]) > v_most[coalesce(v_of[n], 1)] then 'payload '
                    when octet_length(p_keys[n]) > 255 then 'key'
                    when octet_length(p_kinds[n]) > 255 then 'kind'
                    when octet_length(p_references[n]) > 255 then 'reference'
                    when octet_length(p_content_types[n]) > 255 then 'content_type'
                    when octet_length(p_traces[n]) > 255 then 'trace'
                    when p_delays[n] not between 0 and 9e12 then 'delay' -- NaN is above all numbers
                    when not isfinite(p_send_ats[n]) then 'send_at' end;
    v_bad := n;
    exit when v_fault is not null;
  end loop;
  if v_fault is null and (p_headers is not null or p_terms is not null) then
    select m.n, m.fault into v_bad, v_fault
      from (select n,
                   case when p_headers[n] is not null and not posthaste.plain_headers(p_headers[n]) then 'headers'
                        when p_headers[n] is not null
                             and (select sum(octet_length(h.key) + octet_length(h.value)) from jsonb_each_text(p_headers[n]) h) > 16384 then 'headers '
                        when p_terms[n] is not null and (jsonb_typeof(p_terms[n]) <> 'array'
                             or jsonb_path_exists(p_terms[n], 'strict $[*] ? (@.type() != "string")')) then 'terms'
                        when p_terms[n] is not null and exists (select from jsonb_array_elements_text(p_terms[n]) t where octet_length(t) > 255) then 'terms '
                        when jsonb_array_length(p_terms[n]) > 1000 then 'terms  '
                   end as fault
              from generate_series(1, cardinality(p_payloads)) n) m
     where m.fault is not null limit 1;
  end if;
  if v_fault is not null then
    raise exception using
      errcode = case when v_fault in ('payload', 'headers', 'terms', 'delay', 'send_at') then 'PH400' else 'PH413' end, column = btrim(v_fault),
      message = case v_fault
        when 'payload' then 'payload must not be null'
        when 'payload ' then format('payload of %s bytes is over the queue''s limit of %s (max_payload)', octet_length(p_payloads[v_bad]), v_most[coalesce(v_of[v_bad], 1)])
        when 'headers' then 'headers must be an object whose values are strings'
        when 'headers ' then 'headers are over 16 KiB together'
        when 'delay' then case when p_delays[v_bad] < 0 then 'delay must not be negative' else 'delay is no duration that ends' end
          || format(': %s seconds (at most 9e12)', p_delays[v_bad])
        when 'send_at' then 'send_at must be a time that comes'
        when 'terms' then 'terms must be an array of strings'
        when 'terms ' then 'a term is over 255 bytes'
        when 'terms  ' then 'there are over 1,000 terms'
        else format('%s is over 255 bytes', v_fault) end
        || case when cardinality(p_payloads) > 1 then format(' (message %s)', v_bad) else '' end;
  end if;
  if p_wake then
    for i in 1..cardinality(v_queues) loop
      perform posthaste.ring(v_queues[i]);
    end loop;
  end if;
  with put as (
    insert into posthaste.entries (queue_id, lane, due_at, content_type, key, kind, reference, headers, terms, trace, payload)
    select v_queues[coalesce(v_of[n], 1)],
           case when v_lanes[coalesce(v_of[n], 1)] = 1 then 0 else floor(random() * v_lanes[coalesce(v_of[n], 1)]) end,
           -- A time that has come is no due time.
           case when p_delays[n] > 0 then v_now + make_interval(secs => p_delays[n]) when p_send_ats[n] > v_now then p_send_ats[n] end,
           nullif(p_content_types[n], 'application/json'), nullif(p_keys[n], ''), nullif(p_kinds[n], ''), nullif(p_references[n], ''),
           nullif(p_headers[n], '{}'),
           case when jsonb_array_length(p_terms[n]) > 0 then array(select jsonb_array_elements_text(p_terms[n])) end, p_traces[n], p_payloads[n]
      from generate_series(1, cardinality(p_payloads)) n
    returning pos
  )
  select array_agg(pos) into v_ids from put;
  return v_ids;
end $$;
