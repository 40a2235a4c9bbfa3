-- posthaste.edit_dead: sends a dead letter again with another content, as a new message for the
-- subscriptions in which it is dead, and removes it.
-- Arguments: its id; the content; the actor. Returns: the id of the new message.
-- Errors: PH400 in a keyed queue; PH423 if another message holds its unique key.
-- Locks: the queue's key, shared; the dead letters; its unique key. Deletes: dead_letter_entries.
-- Inserts: entries_other, words, action_records. Updates: unique_keys.
create or replace function posthaste.edit_dead(p_id bigint, c posthaste.entries_other, p_by text)
returns bigint language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
declare
  q posthaste.queue_settings;
  v_subscriptions smallint[];
  v_lane smallint;
  v_options jsonb;
  v_now timestamptz := clock_timestamp();
  v_id bigint;
begin
  select * into q from posthaste.queue_settings s where s.id = c.queue_id;
  if q.keyed then
    raise exception using errcode = 'PH400', column = 'queue', message = 'a dead letter of a queue that looks at keys cannot be edited: its place among those of its key belongs to its id',
      hint = 'send a new message, and discard this one';
  end if;
  -- Dropping a queue takes this key exclusively.
  perform pg_advisory_xact_lock_shared(posthaste.lock_key(7, hashtext(q.name)));
  perform posthaste.ring(q.id);
  perform from posthaste.dead_letter_entries d where d.message_id = p_id order by d.message_id, d.subscription for update;
  -- Its content was read before the lock.
  if exists (select from posthaste.dead_letter_entries d where d.message_id = p_id and d.erased_at is not null) then
    raise exception using errcode = 'PH409', column = 'message_id', message = format('the content of message %s was erased', p_id);
  end if;
  if exists (select from posthaste.unique_again(array[p_id])) then
    raise exception using errcode = 'PH423', column = 'unique', message = format('message %s cannot be sent again, because another message holds its unique key', p_id),
      hint = 'wait until that one has ended, or discard this one';
  end if;
  with gone as (
    delete from posthaste.dead_letter_entries d where d.message_id = p_id returning d.subscription, d.lane, d.headers -> '' as options
  )
  select array_agg(g.subscription order by g.subscription), min(g.lane), (array_agg(g.options))[1] into v_subscriptions, v_lane, v_options from gone g;
  if v_subscriptions is null then
    raise exception using errcode = 'PH409', column = 'message_id', message = format('message %s was replayed or discarded meanwhile', p_id);
  end if;
  c.headers := coalesce(c.headers, '{}') - 'message-id' || jsonb_build_object('replay-of', p_id::text) || case when v_options is not null then jsonb_build_object('', v_options) else '{}' end;
  lock table only posthaste.entries_plain, only posthaste.entries_other in row exclusive mode;
  perform pg_current_xact_id();
  v_id := nextval('posthaste.positions');
  with sent as (
    insert into posthaste.entries_other (pos, message_id, created_at, due_at, ages_from, queue_id, lane, for_subscription, content_type, key, kind, reference, headers, terms, trace, payload)
    select case when n = 1 then v_id else nextval('posthaste.positions') end, case when n > 1 then v_id end, v_now, v_now, v_now, q.id, coalesce(c.lane, v_lane), s,
           c.content_type, c.key, c.kind, c.reference, c.headers, c.terms, c.trace, c.payload
      from unnest(v_subscriptions) with ordinality x (s, n) order by n
    returning pos, lane
  ), named as (
    insert into posthaste.words (slot, message_id, pos, queue_id, lane, word)
    select s.pos >> 22 & 15, v_id, s.pos, q.id, s.lane, w from sent s cross join lateral unnest(posthaste.words_of(c.reference, c.terms)) w
  )
  insert into posthaste.action_records (by, action, message_id, queue_id, details)
  select p_by, 'replay', p_id, q.id, jsonb_build_object('subscription', s, 'edited', v_id::text) from unnest(v_subscriptions) s order by s;
  update posthaste.unique_keys u set message_id = v_id, attempt = 1 where u.message_id = p_id;
  return v_id;
end $$;
