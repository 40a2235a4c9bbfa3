-- posthaste.create_queue: creates a queue with its subscription 'default'. If the queue exists,
-- nothing changes, and the options that are named must be those that it has.
-- Options: as posthaste.queue_options; those not named have their defaults in a new queue.
-- Returns: whether it created the queue.
-- Errors: PH400 with the field, PH409 if it exists with other options.
-- Inserts: queue_settings, subscriptions, counters, action_records. by is recorded if the call
-- creates the queue.
create or replace function posthaste.create_queue(queue text, options anycompatible default null::text, by text default session_user)
returns boolean language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_name text := create_queue.queue;
  v_options jsonb := coalesce(posthaste.json_argument(create_queue.options, 'options'), '{}');
  v_was posthaste.queue_settings;
  q posthaste.queue_settings;
begin
  perform posthaste.check_name(v_name, 'queue');
  select * into v_was from posthaste.queue_settings x where x.name = v_name and x.dropped_at is null;
  q := posthaste.queue_options(v_options, null, v_was);
  if v_was.id is null then
    -- Only to create it: a session that waits for this key waits for subscribers and ticks,
    -- and delays later ones.
    perform pg_advisory_xact_lock(posthaste.lock_key(7, hashtext(v_name)));
    select * into v_was from posthaste.queue_settings x where x.name = v_name and x.dropped_at is null;
  end if;
  if v_was.id is not null then
    perform posthaste.refuse_options(v_was, q, v_options);
    return false;
  end if;
  insert into posthaste.queue_settings (name, max_attempts, backoff_base, backoff_max, timeout, max_age, max_payload, lanes, width, mode, retention, retain_payload, ordered, on_dead,
    fair, concurrency, rate, burst, key_concurrency, key_rate, key_burst, kind_options, owner)
  values (v_name, q.max_attempts, q.backoff_base, q.backoff_max, q.timeout, q.max_age, q.max_payload, q.width, q.width, q.mode, q.retention, q.retain_payload, q.ordered, q.on_dead,
    q.fair, q.concurrency, q.rate, q.burst, q.key_concurrency, q.key_rate, q.key_burst, q.kind_options, q.owner) returning id into q.id;
  insert into posthaste.subscriptions (queue_id, number, name, since) values (q.id, 0, 'default', posthaste.first_snapshot());
  insert into posthaste.counters (queue_id, subscription) values (q.id, 0);
  insert into posthaste.action_records (by, action, queue_id) values (coalesce(create_queue.by, session_user), 'create', q.id);
  return true;
end $$;
