-- posthaste.parked_newest: the newest parked messages, below an id.
-- Arguments: queues; key (null: any); before which id; the maximum number.
-- Returns: their ids, descending. cut_at: it looked at 10,000 rows and stopped: these are all
-- down to that id.
-- If at most 10,000 messages of the queues, or of the key there, are parked, it reads those;
-- otherwise it goes down by id, also over those of other queues.
-- Reads: parked, subscriptions.
create or replace function posthaste.parked_newest(p_queues int[], p_key text, p_before bigint, p_max int, out message_ids bigint[], out cut_at bigint)
language plpgsql stable
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_material = off set jit = off set max_parallel_workers_per_gather = 0 as $$
declare
  c_most constant int := 10000;
  v_before bigint := coalesce(p_before, 9223372036854775807);
  v_id bigint;
  v_last bigint;
  v_like boolean;
  v_looked int := 0;
begin
  if p_key is null then
    message_ids := array(
      select p.message_id
        from posthaste.subscriptions s
       cross join lateral (select p.message_id from posthaste.parked p where p.subscriber = s.queue_id::bigint << 10 | s.number
                            order by p.subscriber, p.key, p.ord, p.message_id limit c_most + 1) p
       where s.queue_id = any (p_queues) limit c_most + 1);
  else
    message_ids := array(
      select p.message_id
        from posthaste.subscriptions s
       cross join lateral (select p.message_id from posthaste.parked p where p.subscriber = s.queue_id::bigint << 10 | s.number and p.key = p_key
                            order by p.subscriber, p.key, p.ord, p.message_id limit c_most + 1) p
       where s.queue_id = any (p_queues) limit c_most + 1);
  end if;
  if cardinality(message_ids) <= c_most then
    message_ids := array(select distinct x from unnest(message_ids) x where x < v_before order by x desc limit p_max);
    return;
  end if;
  message_ids := '{}';
  for v_id, v_like in
    select p.message_id, (p.subscriber >> 10)::int = any (p_queues) and (p_key is null or p.key = p_key)
      from posthaste.parked p where p.message_id < v_before order by p.message_id desc
  loop
    if v_id is distinct from v_last then
      exit when cardinality(message_ids) >= p_max;
      if v_looked >= c_most then
        cut_at := v_last;
        exit;
      end if;
      v_last := v_id;
    end if;
    v_looked := v_looked + 1;
    if v_like and message_ids[cardinality(message_ids)] is distinct from v_id then
      message_ids := message_ids || v_id;
    end if;
  end loop;
end $$;
