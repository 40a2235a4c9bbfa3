-- posthaste.drop_queue: drops a queue with its messages, and the schedules that send to it.
-- From then on its entries and claims count as settled, including those of open
-- transactions, and their space is reclaimed when the ring comes round.
-- Arguments: queue; by: the actor to record; if_empty: fail if a message waits, is in flight or is
-- a dead letter.
-- Returns: true. Errors: PH404, PH400 unless READ COMMITTED, PH503. Locks: the queue's key, exclusive;
-- the queue's settings; with if_empty the maintenance key; of a keyed queue, the readers.
-- Updates: queue_settings, subscriptions. Deletes: dead_letter_entries, counters,
-- lease_cursors, held_claims, schedule_settings, pauses, history_cursors, history_aside,
-- parked, keys, lane_wishes, limit_states, limit_refunds, ahead, ahead_keys. Inserts: action_records.
-- Its history is not shown any more, and is removed when it expires.
create or replace function posthaste.drop_queue(queue text, by text default session_user, if_empty boolean default false)
returns boolean language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_id int;
  v_schedules text[];
begin
  -- Rows of keys that are newer than an older snapshot would stay.
  perform posthaste.read_committed('drop_queue');
  perform pg_advisory_xact_lock(posthaste.lock_key(7, hashtext(drop_queue.queue)));
  v_id := (select q.id from posthaste.queue_settings q where q.name = drop_queue.queue and q.dropped_at is null);
  if v_id is null then
    raise exception using errcode = 'PH404', column = 'queue', message = format('queue %L does not exist', drop_queue.queue);
  end if;
  perform posthaste.lock_queue(v_id, 'settings');
  if drop_queue.if_empty then
    perform posthaste.refuse_contents(v_id, null);
  end if;
  insert into posthaste.action_records (by, action, queue_id) values (coalesce(drop_queue.by, session_user), 'drop', v_id);
  update posthaste.queue_settings q set dropped_at = clock_timestamp() where q.id = v_id;
  -- First, because upkeep may hold a schedule and then lock the other rows.
  with gone as (delete from posthaste.schedule_settings where queue_id = v_id returning name)
  select array_agg(g.name) into v_schedules from gone g;
  -- Before the lanes, in the same order as a receive.
  delete from posthaste.held_claims where subscriber >> 10 = v_id;
  delete from posthaste.lease_cursors where subscriber >> 10 = v_id;
  -- A claim deletes the rows of messages that it releases.
  if (select q.keyed from posthaste.queue_settings q where q.id = v_id) then
    perform posthaste.lock_lanes(v_id);
  end if;
  -- After the schedules and the lanes, which pausing a schedule or a key locks first.
  delete from posthaste.pauses p where p.queue_id = v_id or p.queue_id = 0 and p.what = 'schedule' and p.name = any (v_schedules);
  update posthaste.subscriptions set dropped_at = clock_timestamp() where queue_id = v_id and dropped_at is null;
  -- In the same order as discard.
  perform from posthaste.dead_letter_entries d where d.queue_id = v_id order by d.message_id, d.subscription for update;
  delete from posthaste.dead_letter_entries where queue_id = v_id;
  delete from posthaste.counters where queue_id = v_id;
  delete from posthaste.history_cursors where reader >> 20 = v_id;
  delete from posthaste.history_aside where reader >> 20 = v_id;
  delete from posthaste.parked where subscriber >> 10 = v_id;
  delete from posthaste.keys where subscriber >> 10 = v_id;
  delete from posthaste.lane_wishes where subscriber >> 10 = v_id;
  delete from posthaste.limit_states where subscriber >> 10 = v_id;
  delete from posthaste.limit_refunds where subscriber >> 10 = v_id;
  delete from posthaste.ahead where subscriber >> 10 = v_id;
  delete from posthaste.ahead_keys where subscriber >> 10 = v_id;
  return true;
end $$;
