-- posthaste.later_newest: of the messages of given queues that have a later entry (a
-- retry, a rescue, a replay), the newest below an id, as heads. Reads: entries.
create or replace function posthaste.later_newest(p_queues int[], p_before bigint, p_max int)
returns setof posthaste.head language plpgsql stable rows 100
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
declare
  l posthaste.live := posthaste.live_slots();
begin
  return query select (x.h).* from (
    select distinct on (e.message_id) e.message_id, posthaste.head_of(e) as h
      from posthaste.entries e
     where e.message_id > 0 and e.message_id < coalesce(p_before, 9223372036854775807) and e.queue_id = any (p_queues) -- 0 is that of events
       and posthaste.in_slots((e.pos >> 22) & 15, l.a, l.b, l.c, l.d, l.e, l.f)
     order by e.message_id desc, e.pos desc limit p_max) x;
end $$;
