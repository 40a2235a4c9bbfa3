-- posthaste.unique_held: which holders of unique keys keep their key. posthaste.unique_keys has
-- the last holder of each key; whether it still holds it follows from its state, so that no
-- change of a state has to release anything.
-- Arguments: parallel arrays: messages, until when each holds its key, and the attempt from
-- which it holds it (1, or above if it was replayed):
--   started   until a subscription was handed it at that attempt. One that was handed back
--             without an attempt waits as before
--   finished  until no subscription has it waiting or running. One that is older than the
--             queue's max_age does not wait
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
  v_heads posthaste.head[];
begin
  if cardinality(p_ids) is null or cardinality(p_ids) = 0 then
    return;
  end if;
  v_heads := posthaste.first_heads(p_ids) || posthaste.other_heads(p_ids);
  return query
    select x.id, x.state
      from (select u.id, u.until, u.attempt, array_agg(m.subscription) as told,
                   (array_agg(m.state order by array_position(array['running', 'retrying', 'ready', 'scheduled', 'dead'], m.state) nulls last))[1] as state,
                   bool_or(w.waits or m.state = 'running') as unfinished, bool_or(m.state = 'dead') as dead,
                   -- Nothing that happened before a replay counts: a replayed message
                   -- has attempts, and no failures since then.
                   bool_or(w.waits and (m.h).attempt between least(u.attempt, 2) and u.attempt and w.unfailed) as fresh,
                   bool_or(case when u.attempt > 1 then m.state = 'running' and (m.h).attempt > 1 and w.unfailed
                                else m.state in ('running', 'done', 'handed_out', 'dead', 'discarded') or m.state = 'retrying' and ((m.h).attempt > 1 or not w.unfailed) end) as started
              from unnest(p_ids, p_untils, p_attempts) u (id, until, attempt)
              join posthaste.message_states(v_heads, false) m on (m.h).message_id = u.id
              join posthaste.queue_settings q on q.id = (m.h).queue_id
             cross join lateral (
               select (m.h).failures + (m.h).losses = 0 as unfailed,
                      -- One that is too old is expired, whenever a claim will find that.
                      m.state in ('scheduled', 'ready', 'retrying')
                      and ((m.h).attempt = 1 and coalesce((m.h).due_at, (m.h).created_at) + q.max_age <= clock_timestamp()) is not true as waits) w
             group by u.id, u.until, u.attempt) x
     where case x.until
             when 'started' then
               x.fresh and not x.started
               -- One without a row was handed it long ago, by a claim that was reclaimed.
               and (x.attempt > 1 or not exists (
                 select from unnest(v_heads) f cross join lateral posthaste.handed_long_ago(f, x.told)
                  where f.message_id = x.id and f.for_subscription is null))
             when 'resolved' then x.unfinished or x.dead
             else x.unfinished end;
end $$;
