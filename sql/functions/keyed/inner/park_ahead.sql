-- posthaste.park_ahead: parks entries of a fair lane's log that its cursor has not reached,
-- and withdraws them there.
-- Arguments: subscriber, lane; its subscription's filter, whose excluded entries stay; orders
-- and positions. Returns: the number of parked messages.
-- Called under the lane's lock. Inserts: parked, cancelled. Updates: keys.
create or replace function posthaste.park_ahead(p_subscriber bigint, p_lane int, p_filter jsonb, p_ords xid8[], p_poss bigint[])
returns bigint language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
declare
  v_queue int := p_subscriber >> 10;
  r record;
begin
  with come as materialized (
    select e.*
      from unnest(p_ords, p_poss) u (ord, pos)
     cross join lateral (
       select * from posthaste.entries e
        where e.queue_id = v_queue and e.lane = p_lane and e.ord is not null and e.due_at is null
          and e.ord = u.ord and e.pos = u.pos and ((e.pos >> 22) & 15) = (u.pos >> 22) & 15
        order by e.ord, e.pos limit 1) e
     where p_filter is null or posthaste.passes(p_filter, e.kind, e.headers)
  ), marks as (
    insert into posthaste.cancelled (pos, subscriber, outcome, xid, copied)
    select c.pos, p_subscriber, 'parked', c.xid, true from come c
  ), put as (
    insert into posthaste.parked (subscriber, key, ord, message_id, pos, lane, reason, created_at, attempt, failures, losses, losses_alone, ages_from,
                                  content_type, kind, reference, headers, terms, trace, story, payload)
    select p_subscriber, coalesce(c.key, ''), c.ord, coalesce(c.message_id, c.pos), c.pos, p_lane, 'share', c.created_at, c.attempt, c.failures, c.losses, c.losses_alone, c.ages_from,
           c.content_type, c.kind, c.reference, c.headers, c.terms, c.trace, c.story, c.payload
      from come c
    returning key, ord, message_id
  )
  select array_agg(p.key) as keys, array_agg(p.ord) as ords, array_agg(p.message_id) as ids, count(*) as n into r from put p;
  if r.n > 0 then
    perform posthaste.block_keys(p_subscriber, p_lane, r.keys, r.ords, r.ids);
  end if;
  return r.n;
end $$;
