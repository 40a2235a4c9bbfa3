-- posthaste.insert_entries: checks messages for one queue each and appends them.
-- Arguments: parallel arrays, null if no message has the option; payloads are bytes already;
-- due times absolute, or delays in seconds; null content type means JSON. wake: ring the
-- doorbell.
-- Returns: the ids in order; for a message whose dedupe key is in use, the id of the message
-- that uses it, and so with unique keys; told, null if all were stored, and else for each
-- message null if it was, '' if another has its dedupe key, and as posthaste.take_unique.
-- Errors: PH400 PH404 PH413 with the field. Advances: positions.
-- Inserts: entries_plain or entries_other, words. Updates: queue_settings, when a priority is
-- used for the first time.
create or replace function posthaste.insert_entries(p_queues text[], p_payloads bytea[], p_content_types text[], p_keys text[], p_kinds text[],
  p_headers jsonb[], p_references text[], p_terms jsonb[], p_delays double precision[], p_send_ats timestamptz[], p_traces text[], p_wake boolean,
  p_priorities smallint[] default null, p_dedupe_keys text[] default null, p_dedupe_windows double precision[] default null,
  p_uniques jsonb[] default null, out ids bigint[], out told text[])
language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set jit = off as $$
declare
  v_names text[];
  v_queues int[];
  v_widths int[];
  v_steps int[]; -- distance between the lanes of two priorities
  v_most int[];
  v_keyed boolean[];
  v_ordered boolean[];
  v_once boolean[];
  v_ord xid8;
  v_name text;
  q posthaste.queue_settings;
  v_of int[];
  v_bad int;
  v_fault text; -- the field and its fault
  v_flat boolean := false; -- a priority was replaced by 0
  v_now timestamptz := clock_timestamp();
  v_lanes smallint[];
  v_dues timestamptz[];
  v_plain boolean[]; -- goes to entries_plain
  v_new int[];
  v_kept text[];
  v_unique_keys text[];
  v_contents posthaste.entries_other[];
begin
  if current_setting('posthaste.ids_skipped', true) is distinct from 'yes' then
    perform posthaste.skip_ids();
  end if;
  if p_queues[1] = all (p_queues) then
    v_names := p_queues[1:1];
  else
    v_names := array(select distinct x from unnest(p_queues) x order by x);
  end if;
  foreach v_name in array v_names loop
    select * into q from posthaste.queue_settings x where x.name = v_name and x.dropped_at is null;
    if q.id is null then
      raise exception using errcode = 'PH404', column = 'queue', message = format('queue %L does not exist', v_name),
        hint = format('create it: select posthaste.create_queue(%L)', v_name);
    end if;
    v_queues := v_queues || q.id;
    v_widths := v_widths || q.width::int;
    v_steps := v_steps || case when q.prioritized then q.width::int else 0 end;
    v_most := v_most || q.max_payload;
    v_keyed := v_keyed || q.keyed;
    v_ordered := v_ordered || q.ordered;
    v_once := v_once || (q.mode = 'at_most_once');
  end loop;
  v_of := case when cardinality(v_names) = 1 then array_fill(1, array[cardinality(p_payloads)]) else array(select array_position(v_names, x) from unnest(p_queues) x) end;
  if true = any (v_keyed) then
    v_ord := posthaste.ord_now();
  end if;
  -- Messages without rare options, in few and short statements.
  if cardinality(v_names) = 1 and p_headers is null and p_terms is null and p_delays is null and p_send_ats is null
     and p_priorities is null and p_dedupe_keys is null and p_uniques is null and coalesce((select max(x) from (select unnest(p_references) as x) y), '') = ''
     -- Not from unnest(…), which would write all of them into a file first.
     and (select bool_and(octet_length(x) <= q.max_payload and x is not null) from (select unnest(p_payloads) as x) y)
     and greatest((select max(octet_length(x)) from (select unnest(p_keys) as x) y), (select max(octet_length(x)) from (select unnest(p_kinds) as x) y),
                  (select max(octet_length(x)) from (select unnest(p_content_types) as x) y), (select max(octet_length(x)) from (select unnest(p_traces) as x) y), 0) <= 255
     and (not q.ordered or (select bool_and(x <> '' and x is not null) from (select unnest(p_keys) as x) y)) then
    if p_wake then
      perform posthaste.ring(q.id);
    end if;
    -- Before the positions, as in an insert: rebasing waits for this lock, and reclaiming relies
    -- on the transaction's id.
    lock table only posthaste.entries_plain, only posthaste.entries_other in row exclusive mode;
    perform pg_current_xact_id();
    ids := array(select nextval('posthaste.positions') from generate_series(1, cardinality(p_payloads)));
    -- Arrays that are null have a null in each row.
    if not q.keyed then
      insert into posthaste.entries_plain (pos, queue_id, lane, key, kind, trace, more, payload)
      select x.pos, q.id, case when q.width = 1 then 0 else floor(random() * q.width) end,
             nullif(x.key, ''), nullif(x.kind, ''), x.trace, posthaste.more_of(nullif(x.content_type, 'application/json'), null, null, null), x.payload
        from (select unnest(ids) as pos, unnest(p_content_types) as content_type, unnest(p_keys) as key, unnest(p_kinds) as kind,
                     unnest(p_traces) as trace, unnest(p_payloads) as payload) x;
    else
      -- The rows of a lane follow each other, so that a reader of the lane reads few pages.
      insert into posthaste.entries_other (ord, pos, queue_id, lane, content_type, key, kind, trace, payload)
      select v_ord, x.pos, q.id, posthaste.key_lane(nullif(x.key, ''), q.width) as lane,
             nullif(x.content_type, 'application/json'), nullif(x.key, ''), nullif(x.kind, ''), x.trace, x.payload
        from (select unnest(ids) as pos, unnest(p_content_types) as content_type, unnest(p_keys) as key, unnest(p_kinds) as kind,
                     unnest(p_traces) as trace, unnest(p_payloads) as payload) x
       order by lane, x.pos;
    end if;
    return;
  end if;
  -- In expressions: starting a query costs more than running it.
  for n in 1..cardinality(p_payloads) loop
    v_fault := case when p_payloads[n] is null then 'payload missing'
                    when octet_length(p_payloads[n]) > v_most[v_of[n]] then 'payload size'
                    when octet_length(p_keys[n]) > 255 then 'key long'
                    when octet_length(p_kinds[n]) > 255 then 'kind long'
                    when octet_length(p_references[n]) > 255 then 'reference long'
                    when octet_length(p_content_types[n]) > 255 then 'content_type long'
                    when octet_length(p_traces[n]) > 255 then 'trace long'
                    when p_delays[n] not between 0 and 9e12 or v_now + make_interval(secs => p_delays[n]) >= posthaste.last_time() then 'delay range' -- NaN is above all numbers
                    when not isfinite(p_send_ats[n]) or p_send_ats[n] >= posthaste.last_time() then 'send_at range'
                    when v_ordered[v_of[n]] and coalesce(p_keys[n], '') = '' then 'key ordered'
                    when v_ordered[v_of[n]] and p_delays[n] > 0 then 'delay ordered'
                    when v_ordered[v_of[n]] and p_send_ats[n] > v_now then 'send_at ordered' end;
    v_bad := n;
    exit when v_fault is not null;
  end loop;
  if v_fault is null and (p_headers is not null or p_terms is not null) then
    select m.n, m.fault into v_bad, v_fault
      from (select n,
                   case when jsonb_typeof(p_headers[n]) <> 'object' or p_headers[n] is not null and not posthaste.plain_headers(p_headers[n] - '') then 'headers shape'
                        when p_headers[n] ? '' and posthaste.attempt_fault(p_headers[n] -> '', v_once[v_of[n]]) is not null
                             then posthaste.attempt_fault(p_headers[n] -> '', v_once[v_of[n]])
                        when p_headers[n] is not null
                             and (select sum(octet_length(h.key) + octet_length(h.value)) from jsonb_each_text(p_headers[n]) h) > 16384 then 'headers size'
                        when p_terms[n] is not null and (jsonb_typeof(p_terms[n]) <> 'array'
                             or jsonb_path_exists(p_terms[n], 'strict $[*] ? (@.type() != "string")')) then 'terms shape'
                        when p_terms[n] is not null and exists (select from jsonb_array_elements_text(p_terms[n]) t where octet_length(t) > 255) then 'terms long'
                        when jsonb_array_length(p_terms[n]) > 1000 then 'terms many'
                   end as fault
              from generate_series(1, cardinality(p_payloads)) n) m
     where m.fault is not null limit 1;
  end if;
  if v_fault is null and (p_priorities is not null or p_dedupe_keys is not null) then
    for n in 1..cardinality(p_payloads) loop
      v_fault := case when p_priorities[n] not between 0 and 3 then 'priority range'
                      when p_priorities[n] > 0 and v_keyed[v_of[n]] then 'priority keyed'
                      when octet_length(p_dedupe_keys[n]) > 255 then 'dedupe_key long'
                      when p_dedupe_windows[n] is not null and not (p_dedupe_windows[n] > 0 and p_dedupe_windows[n] <= 31536000) then 'dedupe_window range' end;
      v_bad := n;
      exit when v_fault is not null;
      -- By a condition that is never null, because null does not end an AND.
      if coalesce(p_priorities[n], 0) > 0 and v_steps[v_of[n]] = 0 then
        if posthaste.part_lanes(v_queues[v_of[n]]) then
          v_steps[v_of[n]] := v_widths[v_of[n]];
        else
          v_flat := true;
        end if;
      end if;
    end loop;
    if v_flat and v_fault is null then
      raise notice 'posthaste: sent with priority 0 because another transaction is changing the queue or using its first priority';
    end if;
  end if;
  if v_fault is null and p_uniques is not null then
    for n in 1..cardinality(p_payloads) loop
      continue when p_uniques[n] is null;
      p_uniques[n] := posthaste.unique_option(p_uniques[n]);
      v_fault := case when p_dedupe_keys[n] <> '' then 'unique dedupe'
                      when v_ordered[v_of[n]] and p_uniques[n] ->> 'exists' = 'replace' then 'unique ordered' end;
      v_bad := n;
      exit when v_fault is not null;
      v_unique_keys[n] := posthaste.unique_key(p_uniques[n] ->> 'key', nullif(p_kinds[n], ''), p_content_types[n], p_payloads[n]);
    end loop;
  end if;
  if v_fault is not null then
    raise exception using
      errcode = case when v_fault ~ ' (size|long|many)$' then 'PH413' else 'PH400' end, column = split_part(v_fault, ' ', 1),
      message = case v_fault
        when 'payload missing' then 'payload must not be null'
        when 'payload size' then format('payload of %s bytes is over the queue''s limit of %s (max_payload)', octet_length(p_payloads[v_bad]), v_most[v_of[v_bad]])
        when 'headers shape' then 'headers must be an object whose values are strings'
        when 'headers size' then 'headers are over 16 KiB in total'
        when 'delay range' then case when p_delays[v_bad] < 0 then 'delay must not be negative' else 'delay reaches beyond the year 9999' end
          || format(': %s seconds', p_delays[v_bad])
        when 'send_at range' then format('send_at must be a time before the last day of the year 9999, got %s', p_send_ats[v_bad])
        when 'priority range' then format('priority must be 0 to 3, got %s', p_priorities[v_bad])
        when 'priority keyed' then 'queues that are ordered or fair, or have limits for each key, have no priorities'
        when 'dedupe_window range' then format('dedupe_window must be above zero and at most 365 days, got %s seconds', p_dedupe_windows[v_bad])
        when 'max_attempts range' then 'max_attempts must be a whole number from 1 to 1000'
        when 'max_attempts once' then 'a message of an at-most-once queue has one attempt: leave out max_attempts'
        when 'backoff once' then 'a message of an at-most-once queue has one attempt: leave out backoff'
        when 'timeout range' then 'timeout must be above zero and at most 365 days'
        when 'backoff range' then 'backoff must not be negative, and its max must be at least its base and at most 365 days'
        when 'key ordered' then 'an ordered queue needs a key in each message, which determines its order'
        when 'delay ordered' then 'a message of an ordered queue cannot be delayed: all later ones of its key would wait for it'
        when 'send_at ordered' then 'a message of an ordered queue cannot be scheduled: all later ones of its key would wait for it'
        when 'unique dedupe' then 'unique and dedupe_key exclude each other'
        when 'unique ordered' then 'a message of an ordered queue cannot replace another, because it would change the order of its key'
        when 'terms shape' then 'terms must be an array of strings'
        when 'terms long' then 'a term is over 255 bytes'
        when 'terms many' then 'there are over 1,000 terms'
        else format('%s is over 255 bytes', split_part(v_fault, ' ', 1)) end
        || case when cardinality(p_payloads) > 1 then format(' (message %s)', v_bad) else '' end;
  end if;
  if p_wake then
    for i in 1..cardinality(v_queues) loop
      perform posthaste.ring(v_queues[i]);
    end loop;
  end if;
  -- In a loop: starting a query costs more than running it.
  for n in 1..cardinality(p_payloads) loop
    v_lanes[n] := case when v_keyed[v_of[n]] then posthaste.key_lane(nullif(p_keys[n], ''), v_widths[v_of[n]])
                       else coalesce(p_priorities[n], 0) * v_steps[v_of[n]] + floor(random() * v_widths[v_of[n]]) end;
    -- A time in the past is no due time.
    v_dues[n] := case when p_delays[n] > 0 then v_now + make_interval(secs => p_delays[n]) when p_send_ats[n] > v_now then p_send_ats[n] end;
    v_plain[n] := v_dues[n] is null and not v_keyed[v_of[n]];
  end loop;
  if p_dedupe_keys is not null then
    select d.ids, d.fresh into ids, v_new
      from posthaste.dedupe(array(select v_queues[v_of[n]] from generate_series(1, cardinality(p_payloads)) n), p_dedupe_keys, p_dedupe_windows, v_now) d;
    if cardinality(v_new) < cardinality(ids) then
      told := array(select case when n <> all (v_new) then '' end from generate_series(1, cardinality(ids)) n);
    end if;
  else
    lock table only posthaste.entries_plain, only posthaste.entries_other in row exclusive mode;
    perform pg_current_xact_id();
    ids := array(select nextval('posthaste.positions') from generate_series(1, cardinality(p_payloads)));
    v_new := array(select generate_series(1, cardinality(p_payloads)));
  end if;
  if v_unique_keys is not null then
    for n in 1..cardinality(p_payloads) loop
      if v_dues[n] > v_now + make_interval(secs => (p_uniques[n] ->> 'max_delay')::double precision) then
        v_dues[n] := v_now + make_interval(secs => (p_uniques[n] ->> 'max_delay')::double precision);
      end if;
      v_contents[n] := row(null, ids[n], null, null, null, v_dues[n], v_queues[v_of[n]], v_lanes[n], null, 1, 0, 0, 0, null, nullif(p_content_types[n], 'application/json'), nullif(p_keys[n], ''), nullif(p_kinds[n], ''),
        nullif(p_references[n], ''), nullif(p_headers[n], '{}'), posthaste.texts_of(nullif(p_terms[n], '[]')), p_traces[n], null, p_payloads[n]);
    end loop;
    v_kept := told;
    select t.ids, t.fresh, t.told into ids, v_new, told from posthaste.take_unique(v_unique_keys, p_uniques, v_contents, ids, v_new) t;
    told := array(select coalesce(told[n], v_kept[n]) from generate_series(1, cardinality(ids)) n);
  end if;
  with plain as (
    insert into posthaste.entries_plain (pos, queue_id, lane, key, kind, trace, more, payload)
    select ids[n], v_queues[v_of[n]], v_lanes[n], nullif(p_keys[n], ''), nullif(p_kinds[n], ''), p_traces[n],
           posthaste.more_of(nullif(p_content_types[n], 'application/json'), nullif(p_references[n], ''), nullif(p_headers[n], '{}'), nullif(p_terms[n], '[]')), p_payloads[n]
      from unnest(v_new) n where v_plain[n] order by n
  ), named as (
    insert into posthaste.words (slot, message_id, pos, xid, queue_id, lane, word)
    select ids[n] >> 22 & 15, ids[n], ids[n], case when v_plain[n] then pg_current_xact_id() end,
           v_queues[v_of[n]], v_lanes[n], w
      from unnest(v_new) n cross join lateral unnest(posthaste.words_of(nullif(p_references[n], ''), posthaste.texts_of(p_terms[n]))) w
  )
  insert into posthaste.entries_other (ord, pos, queue_id, lane, due_at, content_type, key, kind, reference, headers, terms, trace, payload)
  select case when v_keyed[v_of[n]] then v_ord end, ids[n], v_queues[v_of[n]], v_lanes[n], v_dues[n],
         nullif(p_content_types[n], 'application/json'), nullif(p_keys[n], ''), nullif(p_kinds[n], ''), nullif(p_references[n], ''),
         nullif(p_headers[n], '{}'), posthaste.texts_of(nullif(p_terms[n], '[]')), p_traces[n], p_payloads[n]
    from unnest(v_new) n where not v_plain[n] order by n;
end $$;
