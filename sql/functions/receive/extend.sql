-- posthaste.extend: sets the end of received deliveries' leases to lease from now. For each
-- delivery: the others of the same receive keep theirs.
-- Options: strict. Returns: for each id whether it still belongs to the caller (settled), and
-- whether its message was cancelled meanwhile (cancelled): then stop working on it, and fail or
-- release it, which ends it as cancelled.
-- Errors: PH400, also unless READ COMMITTED; PH409 when strict.
-- Locks: the claims' rows, ascending, shared with rescue. Row locks take no space in the
-- server's shared lock table, however many ids there are.
-- Inserts: leases. Reads: claims, settlements, cancel_requests.
create or replace function posthaste.extend(delivery_ids bigint[], lease interval, options anycompatible default null::text)
returns table (delivery_id bigint, settled boolean, cancelled boolean)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp set max_parallel_workers_per_gather = 0 set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
#variable_conflict use_column
declare
  v_options jsonb := posthaste.json_argument(extend.options, 'options');
  v_id bigint;
  v_claim posthaste.claims;
  v_any boolean;
begin
  perform posthaste.check_options(v_options, array['strict'], '{}');
  if extend.lease is null or extend.lease <= '0' or extend.lease > '12 hours' then
    raise exception using errcode = 'PH400', column = 'lease',
      message = format('lease must be above zero and at most 12 hours, got %s', coalesce(extend.lease::text, 'null'));
  end if;
  -- An older snapshot does not see that a delivery was rescued.
  perform posthaste.snapshot_now();
  perform posthaste.check_singles(extend.delivery_ids);
  v_any := exists (select from posthaste.cancel_requests x where x.worker = 0);
  for v_id in select distinct x from unnest(extend.delivery_ids) x order by x loop
    v_claim := null;
    select k.* into v_claim from posthaste.claims k where k.slot = (v_id >> 34) & 15 and k.id = v_id >> 12 for no key update;
    delivery_id := v_id;
    settled := v_claim.id is not null and v_claim.holder is null and v_id & 4095 < v_claim.places
      and not exists (select from posthaste.settlements s where s.slot = v_claim.slot and s.claim = v_claim.id and s.part = v_id & 4095);
    cancelled := settled and v_any and exists (select from posthaste.cancel_requests x where x.delivery = v_id);
    if settled then
      insert into posthaste.leases (slot, claim, place, subscriber, until)
      values (v_claim.slot, v_claim.id, v_id & 4095, v_claim.reader >> 10, clock_timestamp() + extend.lease);
    elsif posthaste.option_boolean(v_options, 'strict', false) then
      raise exception using errcode = 'PH409', message = format('delivery %s no longer belongs to the caller', v_id);
    end if;
    return next;
  end loop;
end $$;
-- Ids as text, to which literals and untyped parameters resolve: 5 or {5,6}.
create or replace function posthaste.extend(delivery_ids text, lease interval, options anycompatible default null::text)
returns table (delivery_id bigint, settled boolean, cancelled boolean)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
  return query select x.delivery_id, x.settled, x.cancelled from posthaste.extend(posthaste.ids_argument(extend.delivery_ids, 'delivery_ids'), extend.lease, extend.options) x;
end $$;
-- One id.
create or replace function posthaste.extend(delivery_ids bigint, lease interval, options anycompatible default null::text)
returns table (delivery_id bigint, settled boolean, cancelled boolean)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
  return query select x.delivery_id, x.settled, x.cancelled from posthaste.extend(array[extend.delivery_ids], extend.lease, extend.options) x;
end $$;
