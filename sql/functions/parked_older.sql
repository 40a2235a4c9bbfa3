-- posthaste.parked_older: the newest parked messages of which the ring has no
-- first entry any more, below an id.
-- Arguments: queues; key (null: any); before which id; how many at most.
-- Returns: their ids, descending. By key it reads all that are parked of it.
-- Reads: parked, slots, subscriptions.
create or replace function posthaste.parked_older(p_queues int[], p_key text, p_before bigint, p_max int)
returns bigint[] language plpgsql stable
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off set max_parallel_workers_per_gather = 0 as $$
declare
  v_before bigint := coalesce(p_before, 9223372036854775807);
begin
  if p_key is not null then
    return array(
      select distinct p.message_id
        from posthaste.subscriptions s join posthaste.parked p on p.subscriber = s.queue_id::bigint << 10 | s.number and p.key = p_key
       where s.queue_id = any (p_queues) and p.message_id < v_before
         and not exists (select from posthaste.slots z where z.live and z.epoch = p.message_id >> 22)
       order by p.message_id desc limit p_max);
  end if;
  return array(
    select x.message_id from (
      select distinct on (p.message_id) p.message_id from posthaste.parked p
       where p.message_id < v_before and (p.subscriber >> 10)::int = any (p_queues)
         and not exists (select from posthaste.slots z where z.live and z.epoch = p.message_id >> 22)
       order by p.message_id desc) x
     limit p_max);
end $$;
