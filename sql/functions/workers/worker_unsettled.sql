-- posthaste.worker_unsettled: the worker's deliveries that are not settled, of
-- claims with numbers up to p_upto.
-- Reads: registrations, stragglers, claims, settlements.
create or replace function posthaste.worker_unsettled(p_worker bigint, p_upto bigint)
returns setof bigint language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set max_parallel_workers_per_gather = 0 as $$
begin
  return query
    select c.id * 4096 + p
      from posthaste.open_claims(p_worker) c
     cross join lateral unnest(posthaste.open_places(c)) p
     where c.number <= p_upto;
end $$;
