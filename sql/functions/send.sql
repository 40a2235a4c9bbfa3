-- posthaste.send: sends a message with a JSON payload, in the caller's
-- transaction: it leaves when that commits, and never if it rolls back.
-- Options: key, kind, reference (texts of at most 255 bytes), headers (an object
-- of strings, 16 KiB together), terms (an array of strings), content_type, delay
-- (interval text) or send_at (a time), wake (false: never notify, needed before
-- PREPARE TRANSACTION), priority (0 to 3, 0 first), dedupe_key (255 bytes) with
-- dedupe_window (interval text, '1 day' unless given, at most 365 days): within
-- the window a second send with the key sends nothing, and returns the first's id.
-- Returns: the message id. Errors: PH400, PH404, PH413 with the field.
create or replace function posthaste.send(queue text, payload jsonb, options jsonb default '{}')
returns bigint language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  o record;
  v_text text := payload::text;
begin
  o := posthaste.send_options(options, '{}');
  if octet_length(v_text) >= 250 then
    perform posthaste.check_json(payload, v_text);
  end if;
  return posthaste.send_row(queue, convert_to(v_text, 'UTF8'), o.content_type, o.key, o.kind, o.headers, o.reference, o.terms, o.delay, o.send_at, o.trace, o.wake,
    o.priority, o.dedupe_key, o.dedupe_window);
end $$;
