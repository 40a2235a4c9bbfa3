-- posthaste.ack: acknowledges received deliveries: they succeeded.
-- Options: strict (raise unless all belonged to the caller; use it in the transaction whose
-- effects must happen exactly once), receipts (an array parallel to the ids, of the replies of
-- other systems), terms (parallel too: arrays of the terms of each message, used if it was sent
-- without any), wake (false: no notification, as PREPARE TRANSACTION requires).
-- Returns: for each id whether this call settled it; false means that it was settled before, or
-- that its lease ended and it was redelivered.
-- Errors: PH400, PH409 when strict.
create or replace function posthaste.ack(delivery_ids bigint[], options anycompatible default null::text)
returns table (delivery_id bigint, settled boolean)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_options jsonb := posthaste.json_argument(ack.options, 'options');
begin
  perform posthaste.check_options(v_options, array['strict', 'receipts', 'terms', 'wake'], '{}');
  perform posthaste.check_json(v_options -> 'receipts', (v_options -> 'receipts')::text, 'receipts');
  return query select s.delivery_id, s.settled
    from posthaste.settle_singles(ack.delivery_ids, 'done', nullif(v_options -> 'receipts', 'null'), null, v_options,
           nullif(v_options -> 'terms', 'null')) s;
end $$;
-- Ids as text, to which literals and untyped parameters resolve: 5 or {5,6}.
create or replace function posthaste.ack(delivery_ids text, options anycompatible default null::text)
returns table (delivery_id bigint, settled boolean)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
  return query select x.delivery_id, x.settled from posthaste.ack(posthaste.ids_argument(ack.delivery_ids, 'delivery_ids'), ack.options) x;
end $$;
-- One id.
create or replace function posthaste.ack(delivery_ids bigint, options anycompatible default null::text)
returns table (delivery_id bigint, settled boolean)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
  return query select x.delivery_id, x.settled from posthaste.ack(array[ack.delivery_ids], ack.options) x;
end $$;
