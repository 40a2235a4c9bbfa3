-- posthaste.replay: sends dead letters once more, under their old ids and with
-- their story: the attempts go on counting, and all tries are open again.
-- Arguments: ids, at most 10,000; by: who asked, for the record.
-- Returns: the ids that were dead letters, ascending. A message that is dead for
-- several subscriptions is replayed for each.
-- Errors: PH400. Locks: the queues' keys, shared; the dead letters.
-- Deletes: dead_letter_entries. Inserts: entries, actions.
create or replace function posthaste.replay(message_ids bigint[], by text default current_user)
returns setof bigint language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
declare
  v_ids bigint[] := posthaste.check_ids(replay.message_ids);
  v_now timestamptz := clock_timestamp();
  q record;
begin
  -- Dropping a queue takes this key exclusively.
  for q in select distinct s.id, s.name from posthaste.dead_letter_entries d join posthaste.queue_settings s on s.id = d.queue_id
            where d.message_id = any (v_ids) order by s.name loop
    perform pg_advisory_xact_lock_shared(posthaste.lock_key(7, hashtext(q.name)));
    perform posthaste.ring(q.id);
  end loop;
  -- Ascending, or two replays would deadlock.
  perform from posthaste.dead_letter_entries d where d.message_id = any (v_ids) order by d.message_id, d.subscription for update;
  return query
    with gone as (
      delete from posthaste.dead_letter_entries d where d.message_id = any (v_ids) returning d.*
    ), again as (
      insert into posthaste.entries (message_id, created_at, due_at, queue_id, lane, for_subscription, attempt, content_type, key, kind, reference,
                                     headers, terms, trace, story, payload)
      select g.message_id, g.created_at, v_now, g.queue_id, g.lane, g.subscription, least(g.attempt + 1, 32767), g.content_type, g.key, g.kind, g.reference,
             g.headers, g.terms, g.trace, nullif(g.story, '[]'), g.payload
        from gone g order by g.message_id, g.subscription
    ), noted as (
      insert into posthaste.actions (by, action, message_id, queue_id, details)
      select coalesce(replay.by, session_user), 'replay', g.message_id, g.queue_id, jsonb_build_object('subscription', g.subscription)
        from gone g order by g.message_id, g.subscription
    )
    select distinct g.message_id from gone g order by 1;
end $$;
