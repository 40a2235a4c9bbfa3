-- posthaste.ack: acknowledges received deliveries: they succeeded.
-- Options: strict (raise unless all belonged to the caller; use it in the transaction whose
-- effects must happen exactly once), receipts (an array parallel to the ids, of the replies of
-- other systems), terms (parallel too: arrays of the terms of each message, used if it was sent
-- without any), wake (false: no notification, as PREPARE TRANSACTION requires).
-- Returns: for each id whether this call settled it; false means that it was settled before, or
-- that its lease ended and it was redelivered.
-- Errors: PH400, PH409 when strict.
create or replace function posthaste.ack(delivery_ids bigint[], options jsonb default '{}')
returns table (delivery_id bigint, settled boolean)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
  perform posthaste.check_options(ack.options, array['strict', 'receipts', 'terms', 'wake'], '{}');
  perform posthaste.check_json(ack.options -> 'receipts', (ack.options -> 'receipts')::text, 'receipts');
  return query select s.delivery_id, s.settled
    from posthaste.settle_singles(ack.delivery_ids, 'done', nullif(ack.options -> 'receipts', 'null'), null, ack.options,
           nullif(ack.options -> 'terms', 'null')) s;
end $$;
