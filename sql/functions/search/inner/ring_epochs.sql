-- posthaste.ring_epochs: the epochs whose positions can have entries, newest first: those of the
-- live slots, those that the sequence entered since without maintenance, and earlier ones of slots
-- that were entered again before they were truncated, as happens when ids are skipped.
-- It does not look at entries: to find those of one position it would read a whole slot.
-- Reads: slots, positions.
create or replace function posthaste.ring_epochs() returns setof bigint language sql stable rows 16
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off set max_parallel_workers_per_gather = 0 as $$
  with newest as (
    select max(s.epoch) as marked, p.last_value >> 22 as now from posthaste.positions p left join posthaste.slots s on s.live group by p.last_value
  ), known as (
    select s.epoch as e from posthaste.slots s where s.live
    union
    select generate_series(greatest(n.marked + 1, n.now - 15), n.now) from newest n
  )
  select k.e from known k
  union
  -- A slot has no entries up to the position that its latest truncation removed, and one that is
  -- not live has none from before the last maintenance.
  select generate_series(k.e - 16, greatest(s.cleared_to >> 22, case when s.live then 0 else n.marked + 1 end), -16)
    from known k cross join newest n join posthaste.slots s on s.slot = k.e & 15
  order by 1 desc
$$;
