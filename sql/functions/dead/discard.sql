-- posthaste.discard: removes dead letters permanently.
-- Arguments: as posthaste.replay.
-- Returns: the ids that were dead letters, ascending.
-- Errors: as posthaste.replay. Locks: the dead letters. Deletes: dead_letter_entries.
-- Inserts: action_records; history, where the queue has a retention.
create or replace function posthaste.discard(message_ids bigint[], by text default session_user, filter anycompatible default null::text,
  before bigint default null, max bigint default 1000)
returns setof bigint language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
declare
  v_filter jsonb := posthaste.json_argument(discard.filter, 'filter');
  v_chosen record := posthaste.dead_chosen(discard.message_ids, v_filter, discard.before, discard.max);
  v_now timestamptz := clock_timestamp();
begin
  -- Ascending: otherwise it would deadlock with another discard or a replay.
  perform from posthaste.dead_letter_entries d where d.message_id = any (v_chosen.ids) order by d.message_id, d.subscription for update;
  return query
    with gone as (
      delete from posthaste.dead_letter_entries d
       where d.message_id = any (v_chosen.ids) and posthaste.dead_matches(d, v_chosen.f) returning d.*
    ), kept as (
      insert into posthaste.history (part, subscription, queue_id, message_id, created_at, settled_at, expires_at, erased_at, state,
                                     content_type, key, kind, reference, headers, terms, attempts, payload)
      select posthaste.history_part(v_now + q.retention, q.retention), g.subscription, g.queue_id, g.message_id, g.created_at, v_now, v_now + q.retention, g.erased_at,
             'discarded', g.content_type, g.key, g.kind, g.reference, posthaste.all_headers(g.headers, g.trace), g.terms, g.story, case when q.retain_payload then g.payload end
        from gone g join posthaste.queue_settings q on q.id = g.queue_id and q.retention is not null
    ), events as (
      -- The key that it stopped continues.
      select posthaste.lane_event(g.queue_id::bigint << 10 | g.subscription, g.lane,
               jsonb_build_array(jsonb_build_object('key', g.key, 'go', g.message_id)), clock_timestamp()), posthaste.ring(g.queue_id)
        from gone g where g.ord is not null and g.key is not null
    ), noted as (
      insert into posthaste.action_records (by, action, message_id, queue_id, details)
      select coalesce(discard.by, session_user), 'discard', g.message_id, g.queue_id, jsonb_build_object('subscription', g.subscription)
        from gone g order by g.message_id, g.subscription
    )
    select distinct g.message_id from gone g where (select count(*) from events) >= 0 order by 1;
  if not found and v_filter is null then
    perform posthaste.no_dead_letter(v_chosen.ids);
  end if;
end $$;
-- Ids as text, to which literals and untyped parameters resolve: 5 or {5,6}.
create or replace function posthaste.discard(message_ids text default null, by text default session_user, filter anycompatible default null::text,
  before bigint default null, max bigint default 1000)
returns setof bigint language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
  return query select x from posthaste.discard(posthaste.ids_argument(discard.message_ids, 'message_ids'), discard.by, discard.filter, discard.before, discard.max) x;
end $$;
-- One id.
create or replace function posthaste.discard(message_ids bigint, by text default session_user, filter anycompatible default null::text,
  before bigint default null, max bigint default 1000)
returns setof bigint language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
  return query select x from posthaste.discard(array[discard.message_ids], discard.by, discard.filter, discard.before, discard.max) x;
end $$;
