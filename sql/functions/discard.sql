-- posthaste.discard: removes dead letters for good.
-- Arguments: ids, at most 10,000; by: who asked, for the record.
-- Returns: the ids that were dead letters, ascending.
-- Errors: PH400. Locks: the dead letters. Deletes: dead_letter_entries.
-- Inserts: actions.
create or replace function posthaste.discard(message_ids bigint[], by text default current_user)
returns setof bigint language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
declare
  v_ids bigint[] := posthaste.check_ids(discard.message_ids);
begin
  -- Ascending, or it would deadlock with another, or with a replay.
  perform from posthaste.dead_letter_entries d where d.message_id = any (v_ids) order by d.message_id, d.subscription for update;
  return query
    with gone as (
      delete from posthaste.dead_letter_entries d where d.message_id = any (v_ids) returning d.message_id, d.subscription, d.queue_id
    ), noted as (
      insert into posthaste.actions (by, action, message_id, queue_id, details)
      select coalesce(discard.by, session_user), 'discard', g.message_id, g.queue_id, jsonb_build_object('subscription', g.subscription)
        from gone g order by g.message_id, g.subscription
    )
    select distinct g.message_id from gone g order by 1;
end $$;
