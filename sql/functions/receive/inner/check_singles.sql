-- posthaste.check_singles: raises an error for invalid ids of deliveries, and for claims that
-- their worker settles as a whole. In a caller's transaction such a settle would delay the
-- worker's acknowledger.
-- Errors: PH400; PH409 for an at-most-once queue. Reads: claims.
create or replace function posthaste.check_singles(p_deliveries bigint[])
returns void language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
declare
  v_delivery bigint;
begin
  perform posthaste.check_array(p_deliveries, 'delivery_ids');
  if p_deliveries is null or array_position(p_deliveries, null) is not null then
    raise exception using errcode = 'PH400', column = 'delivery_ids', message = 'delivery ids must not be null';
  end if;
  for v_delivery in select distinct x >> 12 from unnest(p_deliveries) x loop
    if exists (select from posthaste.claims c where c.slot = (v_delivery >> 22) & 15 and c.id = v_delivery and not c.single) then
      perform posthaste.refuse_at_most_once((c.reader >> 20)::int) from posthaste.claims c where c.slot = (v_delivery >> 22) & 15 and c.id = v_delivery;
      raise exception using errcode = 'PH400', column = 'delivery_ids',
        message = format('delivery %s is settled by the worker that claimed it, together with others', (select min(x) from unnest(p_deliveries) x where x >> 12 = v_delivery)),
        hint = 'register the handler as one that settles in its own transaction (worker.WithOwnTransaction in Go)';
    end if;
  end loop;
end $$;
