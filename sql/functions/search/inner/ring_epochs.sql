-- posthaste.ring_epochs: the epochs whose positions can have entries, newest first: those of the
-- live slots, those that the sequence entered since without maintenance, and, if ids were skipped
-- meanwhile, earlier epochs of which a slot still has entries.
-- Reads: slots, positions, skipped_from, entries.
create or replace function posthaste.ring_epochs() returns setof bigint language sql stable rows 16
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off set max_parallel_workers_per_gather = 0 as $$
  with recursive known as (
    select s.epoch as e from posthaste.slots s where s.live
    union
    select generate_series(greatest((select max(s.epoch) from posthaste.slots s where s.live) + 1, (p.last_value >> 22) - 15), p.last_value >> 22)
      from posthaste.positions p
  ), skipped as (
    -- Each skip goes to a later epoch of the same slot. None happened since the oldest live slot
    -- was entered if the last one lies before it.
    select k.e from known k
     where (select f.is_called and f.last_value >> 22 >= (select min(s.epoch) from posthaste.slots s where s.live) from posthaste.skipped_from f)
    union
    select (select e.pos >> 22 from posthaste.entries e where posthaste.slot_of(e.pos) = s.e & 15 and e.pos < s.e << 22 order by e.pos desc limit 1)
      from skipped s where s.e is not null
  )
  select e from (select e from known union select e from skipped where e is not null) x order by e desc
$$;
