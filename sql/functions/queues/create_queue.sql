-- posthaste.create_queue: creates a queue with its subscription 'default'. If the queue exists
-- with the same options, nothing changes; limits that the options do not name are not
-- compared.
-- Options: max_attempts (20), backoff {base: '1 second', max: '1 hour'} (base not
-- above max, max at most 365 days), timeout ('30 seconds', at most 365 days),
-- max_age (none; older messages are not handed out), max_payload in bytes (1048576, at most 33554432), lanes (1;
-- 8 if ordered), mode ('at_least_once'; 'at_most_once' never retries and so excludes
-- max_attempts and backoff), retention (none; how long settled messages are
-- kept beyond the ring), retain_payload (false), ordered (false; by key), on_dead
-- ('continue', or 'stop' the key of an ordered queue), fair (false; keys take turns),
-- and limits (none): concurrency and key_concurrency, rate_limit and key_rate_limit
-- as posthaste.queue_limits reads them.
-- Returns: whether it created the queue.
-- Errors: PH400 with the field, PH409 if it exists with other options, PH501.
-- Inserts: queue_settings, subscriptions, action_records. by is recorded if the call
-- creates the queue.
create or replace function posthaste.create_queue(queue text, options anycompatible default null::text, by text default session_user)
returns boolean language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_name text := create_queue.queue;
  v_options jsonb := coalesce(posthaste.json_argument(create_queue.options, 'options'), '{}');
  q posthaste.queue_settings;
  b jsonb;
  v_id int;
begin
  perform posthaste.check_name(v_name, 'queue');
  perform posthaste.check_options(v_options, array['max_attempts', 'backoff', 'timeout', 'max_age', 'max_payload', 'lanes', 'mode', 'retention', 'retain_payload',
      'ordered', 'on_dead', 'fair', 'concurrency', 'rate_limit', 'key_concurrency', 'key_rate_limit'], '{}');
  b := coalesce(v_options -> 'backoff', '{}');
  if jsonb_typeof(b) <> 'object' then
    raise exception using errcode = 'PH400', column = 'backoff', message = 'option ''backoff'' must be an object with base and max';
  end if;
  perform posthaste.check_options(b, array['base', 'max'], '{}');
  -- A value that is not allowed any more must not prevent an application from starting if
  -- its queue already has it.
  select id into v_id from posthaste.queue_settings x where x.name = v_name and x.dropped_at is null;
  q.max_attempts := coalesce(posthaste.option_int(v_options, 'max_attempts', 1, 1000), 20);
  q.backoff_base := coalesce(posthaste.option_interval(b, 'base'), '1 second');
  q.backoff_max := coalesce(posthaste.option_interval(b, 'max'), '1 hour');
  if v_id is null and (q.backoff_max < q.backoff_base or q.backoff_max > '365 days') then
    raise exception using errcode = 'PH400', column = 'backoff', message = 'option ''backoff'' must not be negative, and its max must be at least its base and at most 365 days',
      hint = 'the defaults are base 1 second and max 1 hour';
  end if;
  q.timeout := coalesce(posthaste.option_interval(v_options, 'timeout'), '30 seconds');
  if q.timeout <= '0' or v_id is null and q.timeout > '365 days' then
    raise exception using errcode = 'PH400', column = 'timeout', message = 'option ''timeout'' must be above zero and at most 365 days';
  end if;
  q.max_age := posthaste.option_interval(v_options, 'max_age', 36500);
  q.max_payload := coalesce(posthaste.option_int(v_options, 'max_payload', 1, 33554432), 1048576);
  q.mode := coalesce(posthaste.option_text(v_options, 'mode'), 'at_least_once');
  if q.mode not in ('at_least_once', 'at_most_once') then
    raise exception using errcode = 'PH400', column = 'mode', message = format('option ''mode'' must be at_least_once or at_most_once, got %L', q.mode);
  elsif q.mode = 'at_most_once' and (v_options ? 'max_attempts' or v_options ? 'backoff') then
    raise exception using errcode = 'PH400', column = case when v_options ? 'max_attempts' then 'max_attempts' else 'backoff' end,
      message = 'an at-most-once queue never retries: leave out max_attempts and backoff';
  end if;
  q.retention := posthaste.option_interval(v_options, 'retention', 36500);
  q.retain_payload := posthaste.option_boolean(v_options, 'retain_payload', false);
  if q.retain_payload and q.retention is null then
    raise exception using errcode = 'PH400', column = 'retain_payload', message = 'option ''retain_payload'' needs a retention', hint = 'also set retention';
  end if;
  q.ordered := posthaste.option_boolean(v_options, 'ordered', false);
  q.on_dead := coalesce(posthaste.option_text(v_options, 'on_dead'), 'continue');
  q.fair := posthaste.option_boolean(v_options, 'fair', false);
  q := posthaste.queue_limits(v_options, q);
  if q.on_dead not in ('continue', 'stop') then
    raise exception using errcode = 'PH400', column = 'on_dead', message = format('option ''on_dead'' must be continue or stop, got %L', q.on_dead);
  elsif q.on_dead = 'stop' and not q.ordered then
    raise exception using errcode = 'PH400', column = 'on_dead', message = 'option ''on_dead'' is only for ordered queues: in others no message waits for another';
  elsif q.ordered and q.fair then
    raise exception using errcode = 'PH400', column = 'fair', message = 'options ''ordered'' and ''fair'' exclude each other: an ordered queue runs its keys concurrently anyway';
  end if;
  q.keyed := q.ordered or q.fair or q.key_concurrency is not null or q.key_rate is not null;
  q.width := coalesce(posthaste.option_int(v_options, 'lanes', 1, 64), case when q.ordered then 8 else 1 end);
  if v_id is null then
    -- Only to create it: a session that waits for this key waits for subscribers and ticks,
    -- and delays later ones.
    perform pg_advisory_xact_lock(posthaste.lock_key(7, hashtext(v_name)));
    select id into v_id from posthaste.queue_settings x where x.name = v_name and x.dropped_at is null;
  end if;
  if v_id is not null then
    if exists (select from posthaste.queue_settings x where x.id = v_id
                  and ((x.max_attempts, x.backoff_base, x.backoff_max, x.timeout, x.max_age, x.max_payload, x.width, x.mode, x.retention, x.retain_payload, x.ordered, x.on_dead, x.fair)
                      is distinct from (q.max_attempts, q.backoff_base, q.backoff_max, q.timeout, q.max_age, q.max_payload, q.width, q.mode, q.retention, q.retain_payload, q.ordered, q.on_dead, q.fair)
                    -- Limits may have been changed since; only those in the options must be equal.
                    or v_options ? 'concurrency' and x.concurrency is distinct from q.concurrency
                    or v_options ? 'rate_limit' and x.rate is distinct from q.rate
                    or v_options ? 'key_concurrency' and x.key_concurrency is distinct from q.key_concurrency
                    or v_options ? 'key_rate_limit' and x.key_rate is distinct from q.key_rate
                    -- The default burst was different once, so it is compared only if given.
                    or v_options #>> '{rate_limit,burst}' is not null and x.burst is distinct from q.burst
                    or v_options #>> '{key_rate_limit,burst}' is not null and x.key_burst is distinct from q.key_burst)) then
      raise exception using errcode = 'PH409', column = 'name', message = format('queue %L exists with different options', v_name),
        hint = 'its options are in the view posthaste.queues';
    end if;
    return false;
  end if;
  insert into posthaste.queue_settings (name, max_attempts, backoff_base, backoff_max, timeout, max_age, max_payload, lanes, width, mode, retention, retain_payload, ordered, on_dead,
    fair, concurrency, rate, burst, key_concurrency, key_rate, key_burst)
  values (v_name, q.max_attempts, q.backoff_base, q.backoff_max, q.timeout, q.max_age, q.max_payload, q.width, q.width, q.mode, q.retention, q.retain_payload, q.ordered, q.on_dead,
    q.fair, q.concurrency, q.rate, q.burst, q.key_concurrency, q.key_rate, q.key_burst) returning id into v_id;
  insert into posthaste.subscriptions (queue_id, number, name, since) values (v_id, 0, 'default', posthaste.first_snapshot());
  insert into posthaste.counters (queue_id, subscription) values (v_id, 0);
  insert into posthaste.action_records (by, action, queue_id) values (coalesce(create_queue.by, session_user), 'create', v_id);
  return true;
end $$;
