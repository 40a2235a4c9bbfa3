-- posthaste.send_row: sends one message, for clients. Messages without rare options are sent
-- in few statements and short expressions, because preparing each costs more than running it.
-- posthaste.insert_entries sends the others, and raises the errors.
-- Arguments: one message as in posthaste.send_rows. JSON payloads are checked by the client.
-- Returns: the id. Errors: as send.
-- Inserts: entries_plain or entries_other, words.
create or replace function posthaste.send_row(p_queue text, p_payload bytea, p_content_type text, p_key text, p_kind text,
  p_headers jsonb, p_reference text, p_terms jsonb, p_delay double precision, p_send_at timestamptz, p_trace text, p_wake boolean,
  p_priority smallint default null, p_dedupe_key text default null, p_dedupe_window double precision default null)
returns bigint language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_type text;
  v_odd boolean; -- posthaste.insert_entries sends it
  v_due timestamptz;
  v_more jsonb;
  v_queue int;
  v_width int;
  v_most int;
  v_keyed boolean;
  v_ordered boolean;
  v_id bigint;
begin
  select x.id, x.width, x.max_payload, x.keyed, x.ordered into v_queue, v_width, v_most, v_keyed, v_ordered
    from posthaste.queue_settings x where x.name = p_queue and x.dropped_at is null;
  -- As in posthaste.send: in one expression, and the rest by itself.
  if num_nonnulls(p_content_type, p_delay, p_headers, p_send_at, p_terms, p_reference, p_priority, p_dedupe_key) > 0
     or current_setting('posthaste.ids_skipped', true) is distinct from 'yes' then
    if current_setting('posthaste.ids_skipped', true) is distinct from 'yes' then
      perform posthaste.skip_ids();
    end if;
    v_odd := num_nonnulls(p_send_at, p_terms, nullif(p_reference, ''), nullif(p_priority, 0), p_dedupe_key) > 0
      or p_delay <= 0 or p_delay >= 1e9 or octet_length(p_content_type) > 255
      or octet_length(p_headers::text) > 16384 or not posthaste.plain_headers(p_headers);
    v_type := nullif(p_content_type, 'application/json');
    if p_delay is not null and v_odd is not true then
      v_due := clock_timestamp() + make_interval(secs => p_delay);
    end if;
    if v_type is not null or p_headers is not null and v_odd is not true then
      v_more := posthaste.more_of(v_type, null, nullif(p_headers, '{}'), null);
    end if;
  end if;
  if v_odd is not true and octet_length(p_payload) <= v_most and octet_length(concat(p_key, p_kind, p_trace)) <= 255 and not (v_ordered and (coalesce(p_key, '') = '' or v_due is not null))
     and (p_wake is not true or (posthaste.ring(v_queue) is null) is not null) then
    if not v_keyed and v_due is null then
      insert into posthaste.entries_plain (queue_id, lane, key, kind, trace, more, payload)
      values (v_queue, case when v_width = 1 then 0 else floor(random() * v_width) end, nullif(p_key, ''), nullif(p_kind, ''), p_trace, v_more, p_payload)
      returning pos into v_id;
    else
      insert into posthaste.entries_other (ord, due_at, queue_id, lane, content_type, key, kind, headers, trace, payload)
      values (case when v_keyed then posthaste.ord_now() end, v_due, v_queue,
              case when v_keyed then posthaste.key_lane(nullif(p_key, ''), v_width) when v_width = 1 then 0 else floor(random() * v_width) end,
              v_type, nullif(p_key, ''), nullif(p_kind, ''), nullif(p_headers, '{}'), p_trace, p_payload)
      returning pos into v_id;
    end if;
    return v_id;
  end if;
  return ((posthaste.insert_entries(array[p_queue], array[p_payload], array[p_content_type], array[p_key], array[p_kind],
    case when p_headers is not null then array[p_headers] end, array[p_reference], case when p_terms is not null then array[p_terms] end,
    array[p_delay], array[p_send_at], array[p_trace], p_wake,
    case when p_priority <> 0 then array[p_priority] end, case when p_dedupe_key is not null then array[p_dedupe_key] end, array[p_dedupe_window])).ids)[1];
end $$;
