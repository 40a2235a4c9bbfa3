-- posthaste.send_unique: sends a message as posthaste.send does, and tells whether it was sent, or
-- is a duplicate of an earlier message, or has replaced one.
-- Arguments: as posthaste.send. Returns: the id; duplicate: it was not sent, because the message
-- with the id has its dedupe key or its unique key; replaced: it has replaced the content of that
-- message; state: of that message, if it has the unique key.
-- Errors: as send.
create or replace function posthaste.send_unique(queue text, payload text, options anycompatible default null::text)
returns table (message_id bigint, duplicate boolean, replaced boolean, state text)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_body jsonb := payload::jsonb;
  o record := posthaste.send_options(posthaste.json_argument(options, 'options'), '{}');
begin
  perform posthaste.check_json(v_body, v_body::text);
  return query
    select t.* from posthaste.send_told(array[queue], array[convert_to(v_body::text, 'UTF8')], array[o.content_type], array[o.key], array[o.kind],
      case when o.headers is not null then array[o.headers] end, array[o.reference], case when o.terms is not null then array[o.terms] end,
      array[o.delay], array[o.send_at], array[o.trace], o.wake, case when o.priority <> 0 then array[o.priority] end,
      case when o.dedupe_key is not null then array[o.dedupe_key] end, array[o.dedupe_window], case when o.unique_options is not null then array[o.unique_options] end) t;
end $$;
-- The payload as jsonb.
create or replace function posthaste.send_unique(queue text, payload jsonb, options anycompatible default null::text)
returns table (message_id bigint, duplicate boolean, replaced boolean, state text) language sql volatile as $$
  select * from posthaste.send_unique(queue, payload::text, options)
$$;
-- The payload as json.
create or replace function posthaste.send_unique(queue text, payload json, options anycompatible default null::text)
returns table (message_id bigint, duplicate boolean, replaced boolean, state text) language sql volatile as $$
  select * from posthaste.send_unique(queue, payload::text, options)
$$;
