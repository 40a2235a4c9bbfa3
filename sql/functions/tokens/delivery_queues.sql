-- posthaste.delivery_queues: the queue of each delivery, for servers whose caller may settle
-- deliveries of some queues only.
-- Arguments: delivery ids. Returns: one name per id, in order; null if the claim is not known
-- (any more). Errors: none. Reads: claims, queue_settings.
create or replace function posthaste.delivery_queues(delivery_ids bigint[])
returns text[] language plpgsql stable security definer
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off set max_parallel_workers_per_gather = 0 as $$
declare
  v_names text[] := '{}';
  v_ids bigint[] := delivery_queues.delivery_ids;
  v_last bigint;
  v_name text;
begin
  -- One after the other: only then is the leaf of each claim known to the planner.
  for i in 1..coalesce(cardinality(v_ids), 0) loop
    if v_ids[i] >> 12 is distinct from v_last or i = 1 then
      v_last := v_ids[i] >> 12;
      v_name := (select q.name from posthaste.claims c join posthaste.queue_settings q on q.id = (c.reader >> 20)::int
                  where c.slot = (v_last >> 22) & 15 and c.id = v_last);
    end if;
    v_names := v_names || v_name;
  end loop;
  return v_names;
end $$;
