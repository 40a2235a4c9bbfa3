-- posthaste.create_queue: makes a queue with its subscription 'default'. Made
-- already with the same options it is left as it is.
-- Options: max_attempts (20), backoff {base: '1 second', max: '1 hour'}, timeout
-- ('30 seconds'), max_payload in bytes (1048576, at most 33554432), lanes (1).
-- Errors: PH400 with the field, PH409 if it exists with other options, PH501.
-- Inserts: queue_settings, subscriptions.
create or replace function posthaste.create_queue(name text, options jsonb default '{}')
returns void language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_name text := create_queue.name;
  o jsonb := coalesce(create_queue.options, '{}');
  q posthaste.queue_settings;
  b jsonb;
  v_id int;
begin
  if v_name is null or v_name !~ '^[a-z0-9_.-]{1,63}$' then
    raise exception using errcode = 'PH400', column = 'name', message = format('queue name %L is not allowed', v_name),
      hint = '1 to 63 of a-z, 0-9, _, - and .';
  end if;
  perform posthaste.check_options(o, array['max_attempts', 'backoff', 'timeout', 'max_payload', 'lanes'],
    array['ordered', 'retention', 'rate_limit', 'concurrency', 'mode']);
  b := coalesce(o -> 'backoff', '{}');
  if jsonb_typeof(b) <> 'object' then
    raise exception using errcode = 'PH400', column = 'backoff', message = 'option ''backoff'' must be an object with base and max';
  end if;
  perform posthaste.check_options(b, array['base', 'max'], '{}');
  q.max_attempts := coalesce(posthaste.option_int(o, 'max_attempts', 1, 1000), 20);
  q.backoff_base := coalesce(posthaste.option_interval(b, 'base'), '1 second');
  q.backoff_max := coalesce(posthaste.option_interval(b, 'max'), '1 hour');
  q.timeout := coalesce(posthaste.option_interval(o, 'timeout'), '30 seconds');
  if q.timeout <= '0' then
    raise exception using errcode = 'PH400', column = 'timeout', message = 'option ''timeout'' must be above zero';
  end if;
  q.max_payload := coalesce(posthaste.option_int(o, 'max_payload', 1, 33554432), 1048576);
  q.lanes := coalesce(posthaste.option_int(o, 'lanes', 1, 64), 1);
  select id into v_id from posthaste.queue_settings x where x.name = v_name and x.dropped_at is null;
  if v_id is null then
    -- Only to make it: whoever waits for this key waits for open senders, and
    -- holds up the next ones.
    perform pg_advisory_xact_lock(posthaste.lock_key(7, hashtext(v_name)));
    select id into v_id from posthaste.queue_settings x where x.name = v_name and x.dropped_at is null;
  end if;
  if v_id is not null then
    if exists (select from posthaste.queue_settings x where x.id = v_id
                  and (x.max_attempts, x.backoff_base, x.backoff_max, x.timeout, x.max_payload, x.lanes)
                      is distinct from (q.max_attempts, q.backoff_base, q.backoff_max, q.timeout, q.max_payload, q.lanes)) then
      raise exception using errcode = 'PH409', column = 'name', message = format('queue %L exists with other options', v_name),
        hint = 'look at it in the view posthaste.queues';
    end if;
    return;
  end if;
  insert into posthaste.queue_settings (name, max_attempts, backoff_base, backoff_max, timeout, max_payload, lanes)
  values (v_name, q.max_attempts, q.backoff_base, q.backoff_max, q.timeout, q.max_payload, q.lanes) returning id into v_id;
  insert into posthaste.subscriptions (queue_id, number, name, since) values (v_id, 0, 'default', posthaste.first_snapshot());
  insert into posthaste.counters (queue_id, subscription) values (v_id, 0);
end $$;
