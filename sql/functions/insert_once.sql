-- posthaste.insert_once: appends messages of which some have a dedupe key: one
-- whose key is in use is not appended, and answers with the id of the message
-- that uses it, unless that was taken back; of several with one key in a call only the first is appended.
-- Arguments: parallel arrays as of posthaste.insert_entries, which has checked
-- them, but with the queues' ids and lanes, and the order in keyed queues.
-- Returns: the ids in order.
-- Locks: the rows of keys that are new, in ascending order; waits for a
-- transaction that is just using one of them, and goes on with what it left: its
-- message, or none if it rolled back. In REPEATABLE READ and SERIALIZABLE that
-- is a serialization failure (40001), as with any row.
-- Inserts: entries, dedupe_keys. Updates: dedupe_keys whose window is over, or whose message
-- was taken back.
create or replace function posthaste.insert_once(p_queues int[], p_lanes smallint[], p_ords xid8[], p_payloads bytea[], p_content_types text[], p_keys text[],
  p_kinds text[], p_headers jsonb[], p_references text[], p_terms jsonb[], p_delays double precision[], p_send_ats timestamptz[], p_traces text[],
  p_dedupe_keys text[], p_dedupe_windows double precision[])
returns bigint[] language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
  v_now timestamptz := clock_timestamp();
  v_ids bigint[] := array_fill(null::bigint, array[cardinality(p_payloads)]);
  v_positions bigint[];
  v_new int[];
  v_id bigint;
  v_known boolean;
  v_used bigint[];
  v_free bigint[];
  k record;
begin
  -- Per message the one that uses its key, and that again where it was taken back, which is
  -- for good. Before the lock: this reads tables that rebasing has while it waits for the lock.
  v_used := array(select (select d.message_id from posthaste.dedupe_keys d
                           where d.queue_id = p_queues[n] and d.key = p_dedupe_keys[n] and p_dedupe_keys[n] <> '' and d.until - interval '0' > v_now limit 1)
                    from generate_series(1, cardinality(p_payloads)) n);
  if array_remove(v_used, null) <> '{}' then
    v_free := array(select case when x.id in (select posthaste.taken_back(p_queues, v_used)) then x.id end from unnest(v_used) with ordinality x (id, n) order by x.n);
  end if;
  -- Before the positions, as an insert has it: rebasing waits for who has some by this
  -- lock alone, and here one may wait for a key in between.
  lock table only posthaste.entries in row exclusive mode;
  -- The transaction's id comes before the positions: reclaiming relies on it.
  perform pg_current_xact_id();
  -- In the messages' order, which in a keyed queue is that of their keys.
  v_positions := array(select nextval('posthaste.positions') from generate_series(1, cardinality(p_payloads)));
  -- Row by row and ascending: two batches with the same keys would deadlock else.
  for k in
    select u.queue, u.key, min(u.n) as first, array_agg(u.n) as all_of_it
      from (select p_queues[n] as queue, p_dedupe_keys[n] as key, n from generate_series(1, cardinality(p_payloads)) n) u
     where u.key <> '' group by u.queue, u.key order by u.queue, u.key
  loop
    v_known := false;
    loop
      -- Looked at first, for a conflict would lock the row of a key in use, and
      -- everybody who sends it would wait for everybody else.
      select d.message_id into v_id from posthaste.dedupe_keys d where d.queue_id = k.queue and d.key = k.key and d.until - interval '0' > v_now; -- not by the index of until, which has all of them
      v_known := found;
      if v_known and v_id = v_free[k.first] then
        -- Of several who find that at once one sends, and the others its message.
        update posthaste.dedupe_keys d set message_id = v_positions[k.first], until = v_now + make_interval(secs => coalesce(p_dedupe_windows[k.first], 86400))
         where d.queue_id = k.queue and d.key = k.key and d.message_id = v_id
        returning d.message_id into v_id;
        v_known := false;
        exit when found;
        continue;
      end if;
      exit when v_known;
      insert into posthaste.dedupe_keys as d (queue_id, key, message_id, until)
      values (k.queue, k.key, v_positions[k.first], v_now + make_interval(secs => coalesce(p_dedupe_windows[k.first], 86400)))
      on conflict (queue_id, key) do update set message_id = excluded.message_id, until = excluded.until where d.until <= v_now
      returning d.message_id into v_id;
      exit when found;
    end loop;
    if not v_known then
      v_new := v_new || k.first;
    end if;
    for i in 1..cardinality(k.all_of_it) loop
      v_ids[k.all_of_it[i]] := v_id;
    end loop;
  end loop;
  for n in 1..cardinality(p_payloads) loop
    if v_ids[n] is null then
      v_ids[n] := v_positions[n];
      v_new := v_new || n;
    end if;
  end loop;
  insert into posthaste.entries (ord, pos, queue_id, lane, due_at, content_type, key, kind, reference, headers, terms, trace, payload)
  select p_ords[n], v_ids[n], p_queues[n], p_lanes[n],
         case when p_delays[n] > 0 then v_now + make_interval(secs => p_delays[n]) when p_send_ats[n] > v_now then p_send_ats[n] end,
         nullif(p_content_types[n], 'application/json'), nullif(p_keys[n], ''), nullif(p_kinds[n], ''), nullif(p_references[n], ''),
         nullif(p_headers[n], '{}'),
         case when jsonb_array_length(p_terms[n]) > 0 then array(select jsonb_array_elements_text(p_terms[n])) end, p_traces[n], p_payloads[n]
    from unnest(v_new) n order by n;
  return v_ids;
end $$;
