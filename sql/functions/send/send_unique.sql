-- posthaste.send_unique: sends a message as posthaste.send does, and tells whether it was sent, or
-- is a duplicate of an earlier message, or has replaced one.
-- Arguments: as posthaste.send. Returns: the id; duplicate: it was not sent, because the message
-- with the id has its dedupe key or its unique key; replaced: it has replaced the content of that
-- message; state: of that message, if it has the unique key.
-- Errors: as send.
create or replace function posthaste.send_unique(queue text, payload jsonb, options jsonb default '{}')
returns table (message_id bigint, duplicate boolean, replaced boolean, state text)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  o record := posthaste.send_options(options, '{}');
begin
  perform posthaste.check_json(payload, payload::text);
  return query
    select t.* from posthaste.send_told(array[queue], array[convert_to(payload::text, 'UTF8')], array[o.content_type], array[o.key], array[o.kind],
      case when o.headers is not null then array[o.headers] end, array[o.reference], case when o.terms is not null then array[o.terms] end,
      array[o.delay], array[o.send_at], array[o.trace], o.wake, case when o.priority <> 0 then array[o.priority] end,
      case when o.dedupe_key is not null then array[o.dedupe_key] end, array[o.dedupe_window], case when o.unique_options is not null then array[o.unique_options] end) t;
end $$;
