-- posthaste.checkpoint: stores how far the work on a received delivery has come. The next
-- attempt gets the newest checkpoint from posthaste.receive, whatever ends this one: failing,
-- releasing, a lease that ends, or a dead letter that is replayed.
-- Arguments: the delivery; the checkpoint, any JSON of at most 64 KiB; options: lease (extends
-- the lease as posthaste.extend; without it a checkpoint extends none).
-- Returns: true. Call it in the transaction of the effects that it stands for, or by itself.
-- Errors: PH400; PH409 if the delivery no longer belongs to the caller; PH413.
create or replace function posthaste.checkpoint(delivery_id bigint, value jsonb, options anycompatible default null::text)
returns boolean language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
  if checkpoint.value is null then
    raise exception using errcode = 'PH400', column = 'value', message = 'value must not be null', hint = 'JSON null is a value';
  elsif octet_length(checkpoint.value::text) > 65536 then
    raise exception using errcode = 'PH413', column = 'value', message = format('the checkpoint has %s bytes; at most 65536 are allowed', octet_length(checkpoint.value::text)),
      hint = 'store large data elsewhere, and its key in the checkpoint';
  end if;
  perform posthaste.check_json(checkpoint.value, checkpoint.value::text, 'value');
  perform posthaste.note_single(checkpoint.delivery_id, checkpoint.value, null, null, coalesce(posthaste.json_argument(checkpoint.options, 'options'), '{}'));
  return true;
end $$;
-- The checkpoint as text, to which literals and parameters without a type resolve.
create or replace function posthaste.checkpoint(delivery_id bigint, value text, options anycompatible default null::text)
returns boolean language sql volatile as $$
  select posthaste.checkpoint(delivery_id, value::jsonb, options)
$$;
-- The checkpoint as json.
create or replace function posthaste.checkpoint(delivery_id bigint, value json, options anycompatible default null::text)
returns boolean language sql volatile as $$
  select posthaste.checkpoint(delivery_id, value::jsonb, options)
$$;
