-- posthaste.limit_queue: sets exactly these limits of a queue, from the next claim on, and
-- removes the others. Messages handed out before a concurrency was set are not counted.
-- Arguments: the queue's name; limits: concurrency, rate_limit, key_concurrency,
-- key_rate_limit, as in create_queue; by: the actor to record.
-- Returns: true. Errors: PH404; PH400 with the option's name; PH501 if the queue would become keyed or stop
-- being keyed, which determines how its messages are stored; PH503, naming the transaction
-- that is changing the queue; PH400 unless READ COMMITTED. Locks: the queue's settings.
-- Updates: queue_settings. Inserts: action_records, entries_other (events).
create or replace function posthaste.limit_queue(queue text, limits anycompatible, by text default session_user)
returns boolean language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_id int := posthaste.find_queue(limit_queue.queue);
  q posthaste.queue_settings;
  v_limits jsonb := coalesce(posthaste.json_argument(limit_queue.limits, 'limits'), '{}');
begin
  perform posthaste.check_options(v_limits, array['concurrency', 'rate_limit', 'key_concurrency', 'key_rate_limit'], '{}');
  -- Keys that began to wait by the old limits after an older snapshot would wait on.
  perform posthaste.read_committed('limit_queue');
  perform posthaste.lock_queue(v_id, 'settings');
  select * into q from posthaste.queue_settings z where z.id = v_id for no key update;
  q := posthaste.queue_limits(v_limits, q);
  if (q.ordered or q.fair or q.key_concurrency is not null or q.key_rate is not null) <> q.keyed then
    raise exception using errcode = 'PH501', column = case when q.key_rate is not null then 'key_rate_limit' else 'key_concurrency' end,
      message = format(case when q.keyed then 'queue %L was created with a limit for each key, and removing the last one is not supported yet'
                            else 'queue %L was created without limits for each key, and adding one is not supported yet' end, limit_queue.queue),
      hint = 'create another queue';
  end if;
  update posthaste.queue_settings z
     set concurrency = q.concurrency, rate = q.rate, burst = q.burst, key_concurrency = q.key_concurrency, key_rate = q.key_rate, key_burst = q.key_burst
   where z.id = v_id;
  insert into posthaste.action_records (by, action, queue_id, details) values (coalesce(limit_queue.by, session_user), 'limit', v_id, v_limits);
  -- Keys that wait by the old limits are looked at again.
  perform posthaste.lane_event(x.subscriber, x.lane, jsonb_agg(jsonb_build_object('key', x.key)), clock_timestamp())
     from (select k.subscriber, k.lane, k.key, row_number() over (partition by k.subscriber, k.lane) / 256 as part
             from posthaste.keys k
            where k.subscriber >= v_id::bigint << 10 and k.subscriber < (v_id + 1)::bigint << 10 and (k.waits or k.wake_at is not null)) x
    group by x.subscriber, x.lane, x.part;
  perform pg_notify('posthaste', v_id::text);
  return true;
end $$;
