-- posthaste.schedule_put: creates or changes a recurring schedule: each tick sends one message.
-- Arguments: name; queue; spec: when it ticks, a cron line of five fields (with
--   lists, ranges, steps and names), @hourly, @daily, @weekly, @monthly, @yearly,
--   or every and a duration ('every 90 seconds'); the messages' payload.
-- Options: time_zone ('UTC') of a cron line; catch_up: what happens with missed ticks: once
--   ('once'), each or skip; all others are options of the messages, as of posthaste.send,
--   without delay, send_at, dedupe_key, unique and wake.
-- A changed schedule stays paused if it was, and if its spec and zone are the same, its next
-- tick stays, too.
-- Returns: the next tick. Errors: PH400 PH404 PH413 PH501 with the field; then nothing is
-- changed. 40001 in REPEATABLE READ and SERIALIZABLE if the queue changed since the snapshot.
-- Locks: the queue's key, shared; the schedule. Inserts, updates: schedule_settings.
-- Inserts: action_records, if it changes anything.
create or replace function posthaste.schedule_put(name text, queue text, spec text, payload jsonb, options anycompatible default null::text, by text default session_user)
returns timestamptz language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_options jsonb := coalesce(posthaste.json_argument(schedule_put.options, 'options'), '{}');
  s posthaste.schedule_settings;
  v_bad text;
begin
  perform posthaste.check_name(schedule_put.name, 'schedule');
  if jsonb_typeof(v_options) <> 'object' then
    raise exception using errcode = 'PH400', column = 'options', message = format('options must be a JSON object, got %s', jsonb_typeof(v_options));
  end if;
  s.name := schedule_put.name;
  s.spec := btrim(schedule_put.spec, E' \t');
  select x.cron, x.every into s.cron, s.every from posthaste.schedule_spec(s.spec) x;
  s.time_zone := posthaste.zone_name(coalesce(posthaste.option_text(v_options, 'time_zone'), 'UTC'));
  s.catch_up := coalesce(posthaste.option_text(v_options, 'catch_up'), 'once');
  if s.catch_up not in ('each', 'once', 'skip') then
    raise exception using errcode = 'PH400', column = 'catch_up', message = format('option ''catch_up'' must be each, once or skip, got %L', s.catch_up);
  end if;
  s.next_at := posthaste.schedule_next(s.spec, s.time_zone, date_trunc('second', clock_timestamp()));
  s.payload := schedule_put.payload;
  s.options := v_options - array['time_zone', 'catch_up'];
  select k into v_bad from jsonb_object_keys(s.options) k where k in ('delay', 'send_at', 'dedupe_key', 'unique', 'wake') limit 1;
  if v_bad is not null then
    raise exception using errcode = 'PH400', column = v_bad, message = format('option %L is not allowed in schedules: each tick sends one message at once', v_bad);
  end if;
  if jsonb_typeof(s.options -> 'headers') = 'object' and s.options -> 'headers' ?| array['posthaste-schedule', 'posthaste-tick'] then
    raise exception using errcode = 'PH400', column = 'headers', message = 'headers posthaste-schedule and posthaste-tick are set by each tick';
  end if;
  -- Dropping takes this key exclusively: it finds the schedule, or this finds no queue.
  perform pg_advisory_xact_lock_shared(posthaste.lock_key(7, hashtext(schedule_put.queue)));
  select q.id into s.queue_id from posthaste.queue_settings q where q.name = schedule_put.queue and q.dropped_at is null;
  if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
    -- If the snapshot is older than the key, the queue may be dropped: then this fails (40001).
    perform from posthaste.queue_settings q where q.id = s.queue_id for share;
  end if;
  -- Fail now for every reason that makes a send fail: send one message and roll it back.
  begin
    perform posthaste.tick_send(s, schedule_put.queue, s.next_at);
    raise exception using errcode = 'ZZ001';
  exception when sqlstate 'ZZ001' then
    null;
  end;
  insert into posthaste.schedule_settings as x (name, queue_id, spec, cron, every, time_zone, catch_up, payload, options, next_at)
  values (s.name, s.queue_id, s.spec, s.cron, s.every, s.time_zone, s.catch_up, s.payload, s.options, s.next_at)
  on conflict (name) do update
     set queue_id = excluded.queue_id, spec = excluded.spec, cron = excluded.cron, every = excluded.every, time_zone = excluded.time_zone,
         catch_up = excluded.catch_up, payload = excluded.payload, options = excluded.options, changed_at = clock_timestamp(),
         next_at = case when (x.cron, x.every, x.time_zone) is not distinct from (excluded.cron, excluded.every, excluded.time_zone)
                        then x.next_at else excluded.next_at end
   where (x.queue_id, x.spec, x.time_zone, x.catch_up, x.payload, x.options)
         is distinct from (excluded.queue_id, excluded.spec, excluded.time_zone, excluded.catch_up, excluded.payload, excluded.options);
  if found then
    insert into posthaste.action_records (by, action, details) values (coalesce(schedule_put.by, session_user), 'schedule_put', jsonb_build_object('schedule', schedule_put.name));
  end if;
  return (select x.next_at from posthaste.schedule_settings x where x.name = s.name);
end $$;
-- The payload as text, to which literals and untyped parameters resolve.
create or replace function posthaste.schedule_put(name text, queue text, spec text, payload text default '{}', options anycompatible default null::text, by text default session_user)
returns timestamptz language sql volatile as $$
  select posthaste.schedule_put(name, queue, spec, payload::jsonb, options, by)
$$;
-- The payload as json.
create or replace function posthaste.schedule_put(name text, queue text, spec text, payload json, options anycompatible default null::text, by text default session_user)
returns timestamptz language sql volatile as $$
  select posthaste.schedule_put(name, queue, spec, payload::jsonb, options, by)
$$;
