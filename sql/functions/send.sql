-- posthaste.send: sends a message with a JSON payload, in the caller's
-- transaction: it leaves when that commits, and never if it rolls back.
-- Options: key, kind, reference (texts of at most 255 bytes), headers (an object
-- of strings, 16 KiB together), terms (an array of strings), content_type, delay
-- (interval text) or send_at (a time), wake (false: never notify, needed before
-- PREPARE TRANSACTION).
-- Returns: the message id. Errors: PH400, PH404, PH413 with the field.
create or replace function posthaste.send(queue text, payload jsonb, options jsonb default '{}')
returns bigint language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  o record;
begin
  o := posthaste.send_options(options, '{}');
  return (posthaste.insert_entries(array[queue], array[convert_to(payload::text, 'UTF8')], array[o.content_type], array[o.key], array[o.kind],
    case when o.headers is not null then array[o.headers] end, array[o.reference], case when o.terms is not null then array[o.terms] end, array[o.delay], array[o.send_at], array[o.trace], o.wake))[1];
end $$;
