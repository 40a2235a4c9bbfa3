-- posthaste.later_heads: the later entries of messages: retries, rescues, replays and
-- carried entries. Events of keyed lanes have the id 0 and belong to no message. Reads: entries.
create or replace function posthaste.later_heads(p_ids bigint[])
returns setof posthaste.head language plpgsql stable rows 100
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set enable_material = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
declare
  l posthaste.live := posthaste.live_slots();
begin
  return query
    -- Ordered: otherwise the choice of the plan is left to chance.
    select (x.h).*
      from (select distinct x as id from unnest(p_ids) x where x > 0) i -- 0 is that of events
     cross join lateral (
       select e.head as h from posthaste.entries e
        where e.message_id = i.id
          and posthaste.in_slots((e.pos >> 22) & 15, l.a, l.b, l.c, l.d, l.e, l.f)
        order by e.message_id) x;
end $$;
