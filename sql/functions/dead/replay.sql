-- posthaste.replay: sends dead letters again, under their old ids and with their story: the
-- attempts keep counting, and the message gets all its attempts again. Its age counts from now.
-- Arguments: ids, at most 10,000; by: the actor to record; instead of ids a filter as
-- posthaste.dead_filter, or {"all": true}. A filter selects the newest below before, at most
-- max; then the setting posthaste.list_before has, until the transaction ends, the id to
-- continue with, empty if there are no more.
-- A dead letter whose unique key another message holds stays; the setting
-- posthaste.unique_conflicts has an array of their ids until the transaction ends.
-- Returns: the ids that were dead letters, ascending. A message that is dead for several
-- subscriptions is replayed for each selected one. Erased messages have no content left to send
-- and stay.
-- Errors: PH400, PH404, also if none of the ids is a dead letter (any more); PH423 if the unique keys of all that are given are held. Locks: the queues' keys, shared; the
-- dead letters; their unique keys.
-- Deletes: dead_letter_entries. Inserts: entries_other, words, parked, action_records.
create or replace function posthaste.replay(message_ids bigint[], by text default session_user, filter anycompatible default null::text,
  before bigint default null, max bigint default 1000)
returns setof bigint language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
declare
  v_filter jsonb := posthaste.json_argument(replay.filter, 'filter');
  v_chosen record := posthaste.dead_chosen(replay.message_ids, v_filter, replay.before, replay.max);
  v_now timestamptz := clock_timestamp();
  q record;
  v_held bigint[];
begin
  -- Dropping a queue takes this key exclusively.
  for q in select distinct s.id, s.name from posthaste.dead_letter_entries d join posthaste.queue_settings s on s.id = d.queue_id
            where d.message_id = any (v_chosen.ids) order by s.name loop
    perform pg_advisory_xact_lock_shared(posthaste.lock_key(7, hashtext(q.name)));
    perform posthaste.ring(q.id);
  end loop;
  -- Ascending: otherwise two replays would deadlock.
  perform from posthaste.dead_letter_entries d where d.message_id = any (v_chosen.ids) order by d.message_id, d.subscription for update;
  v_held := array(select posthaste.unique_again(array(
    select d.message_id from posthaste.dead_letter_entries d
     where d.erased_at is null and posthaste.dead_matches(d.*, v_chosen.f) and d.message_id = any (v_chosen.ids))));
  perform set_config('posthaste.unique_conflicts', v_held::text, true);
  return query
    with gone as (
      delete from posthaste.dead_letter_entries d
       where d.message_id = any (v_chosen.ids) and d.message_id <> all (v_held) and posthaste.dead_matches(d, v_chosen.f) and d.erased_at is null
      returning d.*
    ), parks as (
      -- It is the first of its key again.
      insert into posthaste.parked (subscriber, key, ord, message_id, pos, lane, reason, created_at, attempt, failures, losses, losses_alone, ages_from,
                                    content_type, kind, reference, headers, terms, trace, story, payload)
      select g.queue_id::bigint << 10 | g.subscription, coalesce(g.key, ''), g.ord, g.message_id, g.pos, g.lane, 'replayed', g.created_at, least(g.attempt + 1, 32767), 0, 0, 0, v_now,
             g.content_type, g.kind, g.reference, g.headers, g.terms, g.trace, nullif(g.story, '[]'), g.payload
        from gone g where g.ord is not null order by g.message_id, g.subscription
    ), events as (
      select posthaste.lane_event(g.queue_id::bigint << 10 | g.subscription, g.lane,
               jsonb_build_array(jsonb_build_object('key', coalesce(g.key, ''), 'ord', g.ord::text, 'id', g.message_id, 'go', g.message_id)), v_now)
        from gone g where g.ord is not null
    ), again as (
      insert into posthaste.entries_other (message_id, created_at, due_at, queue_id, lane, for_subscription, attempt, ages_from, content_type, key, kind, reference,
                                     headers, terms, trace, story, payload)
      select g.message_id, g.created_at, v_now, g.queue_id, g.lane, g.subscription, least(g.attempt + 1, 32767), v_now, g.content_type, g.key, g.kind, g.reference,
             g.headers, g.terms, g.trace, nullif(g.story, '[]'), g.payload
        from gone g where g.ord is null order by g.message_id, g.subscription
      returning pos, message_id, queue_id, lane, reference, terms
    ), named as (
      insert into posthaste.words (slot, message_id, pos, queue_id, lane, word)
      select a.pos >> 22 & 15, a.message_id, a.pos, a.queue_id, a.lane, w
        from again a cross join lateral unnest(posthaste.words_of(a.reference, a.terms)) w where num_nonnulls(a.reference, a.terms) > 0
    ), noted as (
      insert into posthaste.action_records (by, action, message_id, queue_id, details)
      select coalesce(replay.by, session_user), 'replay', g.message_id, g.queue_id, jsonb_build_object('subscription', g.subscription)
        from gone g order by g.message_id, g.subscription
    )
    select distinct g.message_id from gone g where (select count(*) from events) >= 0 order by 1;
  if not found and v_held <> '{}' and v_filter is null then
    raise exception using errcode = 'PH423', column = 'unique', message = format('message %s stays a dead letter, because another message holds its unique key', v_held[1]),
      hint = 'wait until that one has ended, or discard the dead letter';
  elsif not found and v_filter is null then
    perform posthaste.no_dead_letter(v_chosen.ids);
  end if;
end $$;
-- Ids as text, to which literals and untyped parameters resolve: 5 or {5,6}.
create or replace function posthaste.replay(message_ids text default null, by text default session_user, filter anycompatible default null::text,
  before bigint default null, max bigint default 1000)
returns setof bigint language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
  return query select x from posthaste.replay(posthaste.ids_argument(replay.message_ids, 'message_ids'), replay.by, replay.filter, replay.before, replay.max) x;
end $$;
-- One id.
create or replace function posthaste.replay(message_ids bigint, by text default session_user, filter anycompatible default null::text,
  before bigint default null, max bigint default 1000)
returns setof bigint language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
  return query select x from posthaste.replay(array[replay.message_ids], replay.by, replay.filter, replay.before, replay.max) x;
end $$;
