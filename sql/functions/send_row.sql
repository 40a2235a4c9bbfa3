-- posthaste.send_row: sends one message, for clients. What most messages are is done in
-- few statements and short expressions, for making each ready costs more than it does; the
-- rest, and saying what is wrong, is left to posthaste.insert_entries.
-- Arguments: one message as in posthaste.send_rows. JSON payloads are checked by
-- the client.
-- Returns: the id. Errors: as send. Locks: the queue's key, shared.
-- Inserts: entries_plain or entries_other, words.
create or replace function posthaste.send_row(p_queue text, p_payload bytea, p_content_type text, p_key text, p_kind text,
  p_headers jsonb, p_reference text, p_terms jsonb, p_delay double precision, p_send_at timestamptz, p_trace text, p_wake boolean,
  p_priority smallint default null, p_dedupe_key text default null, p_dedupe_window double precision default null)
returns bigint language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_key constant text := nullif(p_key, '');
  v_kind constant text := nullif(p_kind, '');
  v_type constant text := nullif(p_content_type, 'application/json');
  v_plain boolean := true;
  v_due timestamptz;
  v_more jsonb;
  v_queue int;
  v_width int;
  v_most int;
  v_keyed boolean;
  v_ordered boolean;
  v_id bigint;
begin
  -- As in posthaste.send.
  if not (pg_advisory_xact_lock_shared(posthaste.lock_key(7, hashtext(p_queue))) is not null and current_setting('posthaste.ids_skipped', true) is not distinct from 'yes') then
    perform posthaste.skip_ids();
  end if;
  select x.id, x.width, x.max_payload, x.keyed, x.ordered into v_queue, v_width, v_most, v_keyed, v_ordered
    from posthaste.queue_settings x where x.name = p_queue and x.dropped_at is null;
  if p_delay is not null then
    v_plain := p_delay > 0 and p_delay < 1e9;
    v_due := clock_timestamp() + make_interval(secs => case when v_plain then p_delay end);
  end if;
  if v_type is not null or p_headers is not null then
    v_plain := v_plain and octet_length(v_type) <= 255 is not false
      and (p_headers is null or octet_length(p_headers::text) <= 16384 and posthaste.plain_headers(p_headers));
    v_more := posthaste.more_of(v_type, null, nullif(p_headers, '{}'), null);
  end if;
  if num_nonnulls(p_send_at, p_terms, p_reference, p_priority, p_dedupe_key) > 0 then
    v_plain := v_plain and num_nonnulls(p_send_at, p_terms, nullif(p_reference, ''), nullif(p_priority, 0), p_dedupe_key) = 0;
  end if;
  if v_plain and octet_length(p_payload) <= v_most and octet_length(concat(v_key, v_kind, p_trace)) <= 255 and not (v_ordered and (v_key is null or v_due is not null))
     and (p_wake is not true or (posthaste.ring(v_queue) is null) is not null) then
    if not v_keyed and v_due is null then
      insert into posthaste.entries_plain (queue_id, lane, key, kind, trace, more, payload)
      values (v_queue, case when v_width = 1 then 0 else floor(random() * v_width) end, v_key, v_kind, p_trace, v_more, p_payload)
      returning pos into v_id;
    else
      insert into posthaste.entries_other (ord, due_at, queue_id, lane, content_type, key, kind, headers, trace, payload)
      values (case when v_keyed then posthaste.ord_now() end, v_due, v_queue,
              case when v_keyed then posthaste.key_lane(v_key, v_width) when v_width = 1 then 0 else floor(random() * v_width) end,
              v_type, v_key, v_kind, nullif(p_headers, '{}'), p_trace, p_payload)
      returning pos into v_id;
    end if;
    return v_id;
  end if;
  return (posthaste.insert_entries(array[p_queue], array[p_payload], array[p_content_type], array[p_key], array[p_kind],
    case when p_headers is not null then array[p_headers] end, array[p_reference], case when p_terms is not null then array[p_terms] end,
    array[p_delay], array[p_send_at], array[p_trace], p_wake,
    case when p_priority <> 0 then array[p_priority] end, case when p_dedupe_key is not null then array[p_dedupe_key] end, array[p_dedupe_window]))[1];
end $$;
