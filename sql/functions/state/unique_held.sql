-- posthaste.unique_held: which holders of unique keys keep their key. posthaste.unique_keys has
-- the last holder of each key; whether it still holds it follows from its state, so that no
-- change of a state has to release anything.
-- Arguments: parallel arrays: messages, until when each holds its key, and the attempt from
-- which it holds it (1, or above if it was replayed):
--   started   until a subscription was handed it at that attempt. One that was handed back
--             without an attempt waits as before
--   finished  until no subscription has it waiting or running
--   resolved  and until it is no dead letter of any
-- A message of which nothing is known any more is finished.
-- Returns: a row for each that keeps its key: the message, and the state that keeps it.
-- Reads: as posthaste.message_states.
create or replace function posthaste.unique_held(p_ids bigint[], p_untils text[], p_attempts smallint[])
returns table (message_id bigint, state text)
language plpgsql stable rows 10
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = on set jit = off as $$
#variable_conflict use_column
declare
  v_first posthaste.head[];
begin
  if cardinality(p_ids) is null or cardinality(p_ids) = 0 then
    return;
  end if;
  -- By neighborhoods, as in posthaste.taken_back.
  v_first := array(
    select e.head
      from (select min(x) as low, max(x) as high from unnest(p_ids) x group by x >> 10) z
     cross join lateral (
       select e.pos, e.head from posthaste.entries e
        where ((e.pos >> 22) & 15) = (z.low >> 22) & 15 and e.pos between z.low and z.high and e.message_id is null offset 0) e
     where e.pos in (select x from unnest(p_ids) x));
  return query
    select u.id, (array_agg(m.state order by array_position(array['running', 'retrying', 'ready', 'scheduled', 'dead'], m.state) nulls last))[1]
      from unnest(p_ids, p_untils, p_attempts) u (id, until, attempt)
      join posthaste.message_states(v_first || posthaste.other_heads(p_ids), false) m on (m.h).message_id = u.id
     group by u.id, u.until, u.attempt
    having case u.until
             when 'started' then
               bool_or(m.state in ('scheduled', 'ready', 'retrying') and (m.h).attempt <= u.attempt and (m.h).failures + (m.h).losses = 0)
               and not bool_or(m.state = 'running' or m.state = 'retrying' and ((m.h).attempt > u.attempt or (m.h).failures + (m.h).losses > 0)
                               -- What the others did before a replay does not count.
                               or u.attempt = 1 and m.state in ('done', 'handed_out', 'dead', 'discarded'))
             when 'resolved' then bool_or(m.state in ('scheduled', 'ready', 'retrying', 'running', 'dead'))
             else bool_or(m.state in ('scheduled', 'ready', 'retrying', 'running')) end;
end $$;
