-- posthaste.left_out: which entries of a keyed lane's log are not for its reader because the
-- subscription's filter excludes them or they were withdrawn from it.
-- Arguments: queue, lane, subscriber, the filter; orders and positions.
-- Returns: 'filtered', 'cancelled' or null for each. Reads: entries, cancelled.
create or replace function posthaste.left_out(p_queue int, p_lane int, p_subscriber bigint, p_filter jsonb, p_ords xid8[], p_poss bigint[])
returns text[] language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
begin
  return (
    select array_agg(case when (select x.xid from posthaste.cancelled x where x.pos = u.pos and x.subscriber = p_subscriber limit 1) is not null then 'cancelled'
                          when p_filter is not null and not (
                            select posthaste.passes(p_filter, e.kind, e.headers) from posthaste.entries e
                             where e.queue_id = p_queue and e.lane = p_lane and e.ord is not null and e.due_at is null
                               and e.ord = u.ord and e.pos = u.pos and ((e.pos >> 22) & 15) = (u.pos >> 22) & 15
                             order by e.ord, e.pos limit 1) then 'filtered' end order by u.i)
      from unnest(p_ords, p_poss) with ordinality u (ord, pos, i));
end $$;
