-- posthaste.note_single: records a note of a received delivery, or raises an error.
-- Arguments: as posthaste.put_note; options: lease, to extend the delivery's lease by.
-- Errors: PH400; PH409 if the delivery no longer belongs to the caller. Inserts: notes, leases.
create or replace function posthaste.note_single(p_delivery bigint, p_checkpoint jsonb, p_progress real, p_text text, p_options jsonb)
returns void language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
  perform posthaste.check_options(p_options, array['lease'], '{}');
  perform posthaste.check_singles(array[p_delivery]);
  if p_options ->> 'lease' is not null then
    perform posthaste.extend(array[p_delivery], posthaste.option_interval(p_options, 'lease'), '{"strict": true}');
  end if;
  if not posthaste.put_note(p_delivery, p_checkpoint, p_progress, p_text, null) then
    raise exception using errcode = 'PH409', column = 'delivery_id', message = format('delivery %s no longer belongs to the caller', p_delivery),
      hint = 'it was settled before, or its lease ended and it was redelivered; stop working on it';
  end if;
end $$;
