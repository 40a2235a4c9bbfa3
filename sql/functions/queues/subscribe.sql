-- posthaste.subscribe: adds a subscription to a queue. Every message is delivered to each
-- subscription of its queue, and each has its own progress, retries and dead letters.
-- Options: from: 'now' (default): messages committed after this call began; or 'oldest': all
-- messages that are kept and were not purged; scheduled: with now, also messages scheduled
-- before that become due later; filter: {"kind": word or words, "headers": {"name": word or
-- words}}; max_lag: how far it may fall behind before reclaiming skips its messages if space
-- is needed. Skipped messages are counted and recorded in actions.
-- Keys that are paused are also paused for the new subscription.
-- If it exists with the same options, nothing changes. A filter never changes.
-- Returns: whether it added the subscription.
-- Errors: PH400 with the field; PH404; PH503 in a copy, or if another transaction withdraws
-- there for 5 s; PH409 if it exists with different options, or if messages of 1,024
-- subscriptions of the queue are kept.
-- Locks: the maintenance key, because reclaiming must not run meanwhile; then the lock of the
-- queue's withdrawals, which waits for transactions that cancel or reschedule there.
-- Inserts: subscriptions, counters, cancelled, keys, action_records.
create or replace function posthaste.subscribe(queue text, subscription text, options anycompatible default null::text, by text default session_user)
returns boolean language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_options jsonb := coalesce(posthaste.json_argument(subscribe.options, 'options'), '{}');
  u posthaste.subscriptions;
  k posthaste.subscriptions;
  v_keyed boolean;
  v_counts record;
begin
  perform posthaste.check_name(subscribe.subscription, 'subscription', 'subscription');
  perform posthaste.check_options(v_options, array['from', 'scheduled', 'filter', 'max_lag'], '{}');
  u.name := subscribe.subscription;
  u.starts := coalesce(posthaste.option_text(v_options, 'from'), 'now');
  if u.starts not in ('now', 'oldest') then
    raise exception using errcode = 'PH400', column = 'from', message = format('option ''from'' must be now or oldest, got %L', u.starts);
  end if;
  u.scheduled := posthaste.option_boolean(v_options, 'scheduled', false);
  if u.scheduled and u.starts = 'oldest' then
    raise exception using errcode = 'PH400', column = 'scheduled', message = 'options ''from'': ''oldest'' and ''scheduled'' exclude each other',
      hint = '''oldest'' includes scheduled messages';
  end if;
  u.filter := posthaste.subscription_filter(v_options -> 'filter');
  u.max_lag := posthaste.option_interval(v_options, 'max_lag', 36500);
  u.queue_id := posthaste.find_queue(subscribe.queue);
  v_keyed := (select q.keyed from posthaste.queue_settings q where q.id = u.queue_id);
  if v_keyed and u.max_lag is not null then
    raise exception using errcode = 'PH400', column = 'max_lag', message = 'option ''max_lag'' is not supported in queues that are ordered or fair, or have limits for each key: skipped messages would be missing in the sequence of their key',
      hint = 'watch the lag in doctor and the metrics; purge or unsubscribe to free the space';
  end if;
  perform posthaste.refuse_copy();
  -- Reclaiming looks at the subscriptions that it sees: messages for this one must be kept
  -- even before it is visible.
  perform pg_advisory_xact_lock(posthaste.lock_key(6, 0));
  -- A transaction that withdraws messages appends them again for the subscriptions that it
  -- sees, and one that pauses a key does so for these. Never in the other order: a session
  -- that waits for this lock may hold a lock that reclaiming waits for, and reclaiming holds
  -- the maintenance key.
  perform posthaste.lock_queue(u.queue_id, 'withdrawn');
  perform pg_advisory_xact_lock_shared(posthaste.lock_key(7, hashtext(subscribe.queue)));
  u.queue_id := posthaste.find_queue(subscribe.queue);
  select * into k from posthaste.subscriptions s where s.queue_id = u.queue_id and s.name = u.name and s.dropped_at is null;
  if k.name is not null then
    if (k.starts, k.scheduled, k.filter, k.max_lag) is distinct from (u.starts, u.scheduled, u.filter, u.max_lag) then
      raise exception using errcode = 'PH409', column = 'subscription',
        message = format('subscription %L of queue %L exists with different options', u.name, subscribe.queue),
        hint = 'unsubscribe first, or use another name';
    end if;
    return false;
  end if;
  u.number := posthaste.free_number(u.queue_id);
  -- Counted up to the snapshot from which it starts, so that its counters are exact.
  perform posthaste.count_up();
  u.since := case u.starts when 'now' then (select c.s from posthaste.counted c) else coalesce((select q.purged from posthaste.queue_settings q where q.id = u.queue_id), '3:3:') end;
  u.sifts := u.filter is not null or not u.scheduled and u.since::text <> '3:3:';
  u.created_at := clock_timestamp();
  insert into posthaste.subscriptions (queue_id, number, name, since, filter, created_at, starts, scheduled, sifts, max_lag)
  values (u.queue_id, u.number, u.name, u.since, u.filter, u.created_at, u.starts, u.scheduled, u.sifts, u.max_lag);
  if u.starts = 'oldest' or u.scheduled then
    -- Entries that another subscription's retry appended again are no second message for this
    -- one, and cancelled ones stay cancelled; all that is older than the subscription and not
    -- part of its history. A message that was parked when it was cancelled has no transaction
    -- there: the log has it.
    insert into posthaste.cancelled (pos, subscriber, outcome, xid, copied)
    select distinct on (x.pos) x.pos, u.queue_id::bigint << 10 | u.number, x.outcome,
           case when x.xid is null and v_keyed then
             (select e.xid from posthaste.entries e where ((e.pos >> 22) & 15) = (x.pos >> 22) & 15 and e.pos = x.pos and e.due_at is null limit 1)
           else x.xid end, true
      from posthaste.cancelled x
     where x.subscriber >= u.queue_id::bigint << 10 and x.subscriber < (u.queue_id + 1)::bigint << 10 and x.outcome in ('carried', 'cancelled')
     order by x.pos, x.outcome = 'cancelled' desc;
    -- The cursor's part shows that there are cancelled fresh entries.
    for v_lane in 0..(select q.lanes - 1 from posthaste.queue_settings q where q.id = u.queue_id) loop
      if not v_keyed and exists (select from posthaste.cancelled x where x.subscriber = (u.queue_id::bigint << 10 | u.number) and x.xid is not null) then
        perform posthaste.sift_from_here(posthaste.reader_key(u.queue_id, u.number, v_lane, 0));
      end if;
    end loop;
  end if;
  if v_keyed then
    insert into posthaste.keys (subscriber, key, lane, hash, paused_at)
    select distinct on (k.key) u.queue_id::bigint << 10 | u.number, k.key, posthaste.key_lane(k.key, q.width), posthaste.key_hash(k.key), k.paused_at
      from posthaste.subscriptions x join posthaste.queue_settings q on q.id = x.queue_id
      join posthaste.keys k on k.subscriber = (x.queue_id::bigint << 10 | x.number) and k.paused_at is not null
     where x.queue_id = u.queue_id and x.dropped_at is null
     order by k.key, k.paused_at;
  end if;
  insert into posthaste.counters (queue_id, subscription, sent)
  values (u.queue_id, u.number, case when u.starts = 'oldest' or u.scheduled then posthaste.count_kept(u) else 0 end);
  insert into posthaste.action_records (by, action, queue_id, details)
  values (coalesce(subscribe.by, session_user), 'subscribe', u.queue_id, jsonb_build_object('subscription', u.name) || v_options);
  return true;
end $$;
