-- posthaste.update_queue: changes options of a queue while it runs, from the next claim, settle
-- or send on. Options that are not named do not change; one that is null gets its default again.
-- Kinds that the option kinds does not name keep their options.
-- Deliveries in flight keep their timeout. Messages handed out before a concurrency was set are
-- not counted. Settled messages that are kept already are kept as long as they were to be.
-- Arguments: the queue's name; options as in create_queue; by: the actor to record.
-- Returns: the options that changed, each with its old and new value; if there are none,
-- nothing is recorded.
-- Errors: PH404; PH400 with the option's name; PH501 for an option that determines where
-- messages lie; PH503, naming the transaction that is changing the queue; PH400 unless READ
-- COMMITTED. Locks: the queue's settings.
-- Updates: queue_settings. Inserts: action_records, entries_other (events).
create or replace function posthaste.update_queue(queue text, options anycompatible, by text default session_user)
returns jsonb language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_id int := posthaste.find_queue(update_queue.queue);
  v_was posthaste.queue_settings;
  q posthaste.queue_settings;
  v_changes jsonb;
  v_fixed record;
begin
  -- Keys that began to wait by the old limits after an older snapshot would wait on.
  perform posthaste.read_committed('update_queue');
  perform posthaste.lock_queue(v_id, 'settings');
  select * into v_was from posthaste.queue_settings z where z.id = v_id for no key update;
  q := posthaste.queue_options(coalesce(posthaste.json_argument(update_queue.options, 'options'), '{}'), v_was, v_was);
  v_changes := posthaste.option_changes(v_was, q);
  if v_changes = '{}' then
    return v_changes;
  end if;
  select * into v_fixed from posthaste.fixed_options(v_was, q) limit 1;
  if found then
    raise exception using errcode = 'PH501', column = v_fixed.name,
      message = format('option %L of queue %L cannot be changed (%s, requested %s): %s', v_fixed.name, update_queue.queue,
        coalesce(v_changes -> v_fixed.name ->> 'old', 'none'), coalesce(v_changes -> v_fixed.name ->> 'new', 'none'), v_fixed.why),
      hint = 'create another queue, send to it, and drop this one when it is empty';
  end if;
  update posthaste.queue_settings z
     set max_attempts = q.max_attempts, backoff_base = q.backoff_base, backoff_max = q.backoff_max, timeout = q.timeout, max_age = q.max_age, max_payload = q.max_payload,
         width = q.width, lanes = case when q.width > z.width then q.width else z.lanes end, retention = q.retention, retain_payload = q.retain_payload, on_dead = q.on_dead,
         concurrency = q.concurrency, rate = q.rate, burst = q.burst, key_concurrency = q.key_concurrency, key_rate = q.key_rate, key_burst = q.key_burst, kind_options = q.kind_options, owner = q.owner
   where z.id = v_id;
  insert into posthaste.action_records (by, action, queue_id, details) values (coalesce(update_queue.by, session_user), 'update', v_id, v_changes);
  -- Keys that wait by the old limits are looked at again.
  perform posthaste.lane_event(x.subscriber, x.lane, jsonb_agg(jsonb_build_object('key', x.key)), clock_timestamp())
     from (select k.subscriber, k.lane, k.key, row_number() over (partition by k.subscriber, k.lane) / 256 as part
             from posthaste.keys k
            where k.subscriber >= v_id::bigint << 10 and k.subscriber < (v_id + 1)::bigint << 10 and (k.waits or k.wake_at is not null)) x
    group by x.subscriber, x.lane, x.part;
  perform pg_notify('posthaste', v_id::text);
  return v_changes;
end $$;
