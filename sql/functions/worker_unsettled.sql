-- posthaste.worker_unsettled: the worker's deliveries that are not settled, of
-- claims with numbers up to p_upto.
-- Reads: registrations, claims, settlements.
create or replace function posthaste.worker_unsettled(p_worker bigint, p_upto bigint)
returns setof bigint language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set max_parallel_workers_per_gather = 0 as $$
begin
  return query
    select c.id * 4096 + p
      from posthaste.registrations w
     cross join lateral posthaste.worker_claims(w.id, w.oldest_open) c
     cross join lateral unnest(posthaste.open_places(c)) p
     where w.id = p_worker and c.number <= p_upto;
end $$;
