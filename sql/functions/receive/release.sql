-- posthaste.release: returns received deliveries to the queue. The attempt does not count, and
-- no failure is recorded.
-- Options: after (an interval before which they are not redelivered; without it they can be at
-- once), strict, wake as for ack. Returns: for each id whether this call settled it.
-- Errors: PH400, PH409 when strict.
create or replace function posthaste.release(delivery_ids bigint[], options anycompatible default null::text)
returns table (delivery_id bigint, settled boolean)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_options jsonb := posthaste.json_argument(release.options, 'options');
begin
  perform posthaste.check_options(v_options, array['after', 'strict', 'wake'], '{}');
  return query select s.delivery_id, s.settled from posthaste.settle_singles(release.delivery_ids, 'released', null, null, v_options, null) s;
end $$;
-- Ids as text, to which literals and untyped parameters resolve: 5 or {5,6}.
create or replace function posthaste.release(delivery_ids text, options anycompatible default null::text)
returns table (delivery_id bigint, settled boolean)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
  return query select x.delivery_id, x.settled from posthaste.release(posthaste.ids_argument(release.delivery_ids, 'delivery_ids'), release.options) x;
end $$;
-- One id.
create or replace function posthaste.release(delivery_ids bigint, options anycompatible default null::text)
returns table (delivery_id bigint, settled boolean)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
  return query select x.delivery_id, x.settled from posthaste.release(array[release.delivery_ids], release.options) x;
end $$;
