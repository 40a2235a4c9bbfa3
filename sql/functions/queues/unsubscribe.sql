-- posthaste.unsubscribe: ends a subscription. Its claims count as settled, its dead letters
-- are removed, and the space of its messages is reclaimed when the ring comes round. Its name
-- may be used again for a new subscription.
-- The last subscription of a queue cannot be removed, because then its messages would never
-- be read.
-- Arguments: queue; subscription; by: the actor to record; if_empty: fail if a message of it waits, is
-- in flight or is a dead letter.
-- Returns: true. Errors: PH404, PH409, PH400 unless READ COMMITTED, PH503. Locks: with if_empty the
-- queue's key, exclusive; the maintenance key; of a keyed queue, the readers. Updates: subscriptions.
-- Deletes: dead_letter_entries, counters, lease_cursors, held_claims, parked, keys,
-- lane_wishes, limit_states, limit_refunds, ahead, ahead_keys. Upkeep deletes rows that a concurrent
-- settlement parks. Inserts: action_records.
create or replace function posthaste.unsubscribe(queue text, subscription text, by text default session_user, if_empty boolean default false)
returns boolean language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  u record;
  v_subscriber bigint;
begin
  -- Rows of keys that are newer than an older snapshot would stay.
  perform posthaste.read_committed('unsubscribe');
  if unsubscribe.if_empty then -- before the maintenance key, in the same order as subscribe
    perform pg_advisory_xact_lock(posthaste.lock_key(7, hashtext(unsubscribe.queue)));
  end if;
  perform pg_advisory_xact_lock(posthaste.lock_key(6, 0));
  u := posthaste.find_subscription(unsubscribe.queue, unsubscribe.subscription);
  if (select count(*) from posthaste.subscriptions s where s.queue_id = u.queue_id and s.dropped_at is null) = 1 then
    raise exception using errcode = 'PH409', column = 'subscription',
      message = format('%L is the only subscription of queue %L, and a queue has at least one', unsubscribe.subscription, unsubscribe.queue),
      hint = 'subscribe another one first, or drop the queue';
  end if;
  if unsubscribe.if_empty then
    perform posthaste.refuse_contents(u.queue_id, u.number);
  end if;
  v_subscriber := u.queue_id::bigint << 10 | u.number;
  -- Before the lanes, in the same order as a receive.
  delete from posthaste.held_claims h where h.subscriber = v_subscriber;
  delete from posthaste.lease_cursors z where z.subscriber = v_subscriber;
  -- A claim deletes the rows of messages that it releases.
  if (select q.keyed from posthaste.queue_settings q where q.id = u.queue_id) then
    perform posthaste.lock_lanes(u.queue_id, u.number);
  end if;
  update posthaste.subscriptions s set dropped_at = clock_timestamp() where s.queue_id = u.queue_id and s.number = u.number;
  -- In the same order as replay and discard.
  perform from posthaste.dead_letter_entries d where d.queue_id = u.queue_id and d.subscription = u.number order by d.message_id for update;
  delete from posthaste.dead_letter_entries d where d.queue_id = u.queue_id and d.subscription = u.number;
  delete from posthaste.counters c where c.queue_id = u.queue_id and c.subscription = u.number;
  delete from posthaste.parked p where p.subscriber = v_subscriber;
  delete from posthaste.keys k where k.subscriber = v_subscriber;
  delete from posthaste.lane_wishes y where y.subscriber = v_subscriber;
  delete from posthaste.limit_states x where x.subscriber = v_subscriber;
  delete from posthaste.limit_refunds x where x.subscriber = v_subscriber;
  delete from posthaste.ahead x where x.subscriber = v_subscriber;
  delete from posthaste.ahead_keys x where x.subscriber = v_subscriber;
  insert into posthaste.action_records (by, action, queue_id, details)
  values (coalesce(unsubscribe.by, session_user), 'unsubscribe', u.queue_id, jsonb_build_object('subscription', coalesce(nullif(unsubscribe.subscription, ''), 'default')));
  return true;
end $$;
