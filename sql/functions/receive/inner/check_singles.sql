-- posthaste.check_singles: refuses ids of deliveries that are none, and of claims that are
-- settled as a whole by their worker. In a caller's transaction such a settle would hold up
-- the worker's acknowledger.
-- Errors: PH400; PH409 where the queue hands out at most once. Reads: claims.
create or replace function posthaste.check_singles(p_deliveries bigint[])
returns void language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
declare
  d bigint;
begin
  perform posthaste.check_array(p_deliveries, 'delivery_ids');
  if p_deliveries is null or array_position(p_deliveries, null) is not null then
    raise exception using errcode = 'PH400', column = 'delivery_ids', message = 'delivery ids must not be null';
  end if;
  for d in select distinct x >> 12 from unnest(p_deliveries) x loop
    if exists (select from posthaste.claims c where c.slot = (d >> 22) & 15 and c.id = d and not c.single) then
      perform posthaste.refuse_at_most_once((c.reader >> 20)::int) from posthaste.claims c where c.slot = (d >> 22) & 15 and c.id = d;
      raise exception using errcode = 'PH400', column = 'delivery_ids',
        message = format('claim %s is settled in batches by its worker and by nobody else', d),
        hint = 'handlers that settle in their own transactions must say so when they are registered';
    end if;
  end loop;
end $$;
