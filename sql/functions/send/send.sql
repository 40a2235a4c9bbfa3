-- posthaste.send: sends a message with a JSON payload in the caller's transaction: the message
-- is sent if the transaction commits, and is not if it rolls back.
-- Arguments: queue; payload: JSON; options: JSON of any type.
-- Options: key, kind, reference (texts of at most 255 bytes), headers (an object
-- of strings, 16 KiB together), terms (an array of strings), content_type, delay
-- (interval text) or send_at (a time), wake (false: never notify, needed before
-- PREPARE TRANSACTION), priority (0 to 3, 0 first), dedupe_key (255 bytes) with
-- dedupe_window (interval text, '1 day' unless given, at most 365 days): within
-- the window a second send with the key sends nothing, and returns the first's id; unique (true,
-- or an object as posthaste.unique_option): while an earlier message with the same key is not
-- finished nothing is sent, and that one's id returned, which posthaste.send_unique tells apart;
-- max_attempts, timeout (interval text) and backoff (an object with base and max, interval
-- texts) of this message, in place of the queue's.
-- Returns: the message id. Errors: PH400, PH404, PH413 with the field.
-- Inserts: entries_plain or entries_other, words.
-- Messages without rare options are sent here, in as few statements as possible: starting a
-- statement costs more than running it. posthaste.insert_entries sends the others, and raises
-- the errors.
create or replace function posthaste.send(queue text, payload text, options anycompatible default null::text)
returns bigint language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_body constant bytea := convert_to(payload::jsonb::text, 'UTF8');
  v_given jsonb;
  v_odd boolean; -- posthaste.insert_entries sends it
  v_key text;
  v_kind text;
  v_reference text;
  v_due timestamptz;
  v_queue int;
  v_width int;
  v_most int;
  v_keyed boolean;
  v_ordered boolean;
  v_id bigint;
  v_options record;
begin
  -- In one expression, and the rest by itself: in each transaction an expression is prepared
  -- when it is first evaluated, with all functions in it.
  if octet_length(v_body) >= 250 or options is not null or current_setting('posthaste.ids_skipped', true) is distinct from 'yes' then
    if current_setting('posthaste.ids_skipped', true) is distinct from 'yes' then
      perform posthaste.skip_ids();
    end if;
    if octet_length(v_body) >= 250 then
      perform posthaste.check_json(payload::jsonb, convert_from(v_body, 'UTF8'));
    end if;
    if options is not null then
      v_given := posthaste.json_argument(options, 'options');
      v_odd := jsonb_typeof(v_given) <> 'object' or v_given - '{key,kind,reference,delay}'::text[] <> '{}' or jsonb_path_exists(v_given, 'strict $.* ? (@.type() != "string")');
      if not v_odd then
        v_key := nullif(v_given ->> 'key', '');
        v_kind := nullif(v_given ->> 'kind', '');
        v_reference := nullif(v_given ->> 'reference', '');
        v_odd := greatest(octet_length(v_key), octet_length(v_kind), octet_length(v_reference), 0) > 255;
        if v_given ? 'delay' then
          if v_given ->> 'delay' ~ '^[0-9]{1,6} (second|minute|hour|day)s?$' then
            -- By seconds: a day has other lengths where the session's time zone changes its clocks.
            v_due := clock_timestamp() + make_interval(secs => nullif(extract(epoch from (v_given ->> 'delay')::interval), 0)::float8);
          else
            v_odd := true;
          end if;
        end if;
      end if;
    end if;
  end if;
  select x.id, x.width, x.max_payload, x.keyed, x.ordered into v_queue, v_width, v_most, v_keyed, v_ordered
    from posthaste.queue_settings x where x.name = send.queue and x.dropped_at is null;
  -- Ringing comes last in each condition. Its result means nothing.
  if v_odd is not true and octet_length(v_body) <= v_most and not v_keyed and v_due is null and v_reference is null and (posthaste.ring(v_queue) is null) is not null then
    insert into posthaste.entries_plain (queue_id, lane, key, kind, payload)
    values (v_queue, case when v_width = 1 then 0 else floor(random() * v_width) end, v_key, v_kind, v_body)
    returning pos into v_id;
    return v_id;
  elsif v_odd is not true and octet_length(v_body) <= v_most and v_reference is null and not (v_ordered and (v_key is null or v_due is not null)) and (posthaste.ring(v_queue) is null) is not null then
    insert into posthaste.entries_other (ord, due_at, queue_id, lane, key, kind, payload)
    values (case when v_keyed then posthaste.ord_now() end, v_due, v_queue,
            case when v_keyed then posthaste.key_lane(v_key, v_width) when v_width = 1 then 0 else floor(random() * v_width) end, v_key, v_kind, v_body)
    returning pos into v_id;
    return v_id;
  elsif v_odd is not true and octet_length(v_body) <= v_most and not v_keyed and v_due is null and (posthaste.ring(v_queue) is null) is not null then
    with put as (
      insert into posthaste.entries_plain (queue_id, lane, key, kind, more, payload)
      values (v_queue, case when v_width = 1 then 0 else floor(random() * v_width) end, v_key, v_kind, posthaste.more_of(null, v_reference, null, null), v_body)
      returning pos, xid, lane)
    insert into posthaste.words (slot, message_id, pos, xid, queue_id, lane, word)
    select p.pos >> 22 & 15, p.pos, p.pos, p.xid, v_queue, p.lane, 'r' || v_reference from put p
    returning pos into v_id;
    return v_id;
  end if;
  v_options := posthaste.send_options(v_given, '{}');
  return ((posthaste.insert_entries(array[queue], array[v_body], array[v_options.content_type], array[v_options.key], array[v_options.kind],
    case when v_options.headers is not null then array[v_options.headers] end, array[v_options.reference], case when v_options.terms is not null then array[v_options.terms] end,
    array[v_options.delay], array[v_options.send_at], array[v_options.trace], v_options.wake,
    case when v_options.priority <> 0 then array[v_options.priority] end, case when v_options.dedupe_key is not null then array[v_options.dedupe_key] end, array[v_options.dedupe_window],
    case when v_options.unique_options is not null then array[v_options.unique_options] end)).ids)[1];
end $$;
-- The payload as jsonb. Inlined, so that it costs nothing when it runs.
create or replace function posthaste.send(queue text, payload jsonb, options anycompatible default null::text)
returns bigint language sql volatile as $$
  select posthaste.send(queue, payload::text, options)
$$;
-- The payload as json. Inlined, so that it costs nothing when it runs.
create or replace function posthaste.send(queue text, payload json, options anycompatible default null::text)
returns bigint language sql volatile as $$
  select posthaste.send(queue, payload::text, options)
$$;
