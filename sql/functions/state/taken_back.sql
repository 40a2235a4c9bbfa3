-- posthaste.taken_back: which of some messages were cancelled, purged or discarded for each
-- subscription that they were for, so that they will not be handed out any more. Messages
-- whose first entry is gone are not returned, because their subscriptions are unknown.
-- Arguments: parallel arrays, the messages' queues and ids. Returns: the ids.
-- Usually none were, which indexes show: a cancelled message has a row there, a discarded
-- one and one that was cancelled while it ran a record, and a purged one an id below that of its
-- queue's purge.
-- Reads: as posthaste.message_states.
create or replace function posthaste.taken_back(p_queues int[], p_ids bigint[])
returns setof bigint language plpgsql stable
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = on set jit = off as $$
declare
  l posthaste.live := posthaste.live_slots();
  v_ids bigint[];
  v_first posthaste.head[];
begin
  -- Ordered and limited: otherwise the plan may read all cancelled ones at once.
  v_ids := array(
    select distinct u.id from unnest(p_queues, p_ids) u (queue, id)
     where (select k.pos from posthaste.cancelled k where k.pos = u.id order by k.pos limit 1) is not null
        or (select r.id from posthaste.action_records r where r.message_id = u.id and r.action in ('discard', 'cancel') order by r.message_id limit 1) is not null
        or u.id <= (select q.purged_to from posthaste.queue_settings q where q.id = u.queue)
        or (select e.pos from posthaste.entries e
              join lateral (select k.pos from posthaste.cancelled k where k.pos = e.pos order by k.pos limit 1) k on true
             where e.message_id = u.id and posthaste.in_slots((e.pos >> 22) & 15, l.a, l.b, l.c, l.d, l.e, l.f) limit 1) is not null);
  if v_ids = '{}' then
    return;
  end if;
  v_first := posthaste.first_heads(v_ids);
  v_ids := array(select (x).message_id from unnest(v_first) x);
  return query
    select (m.h).message_id
      from posthaste.message_states(v_first || posthaste.other_heads(v_ids), false) m
     group by 1 having bool_and(m.state in ('cancelled', 'discarded'));
end $$;
