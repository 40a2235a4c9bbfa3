-- compatible
-- Schedules: what sends a message at each tick. The table changes with ticks
-- and not with the flow of messages.

-- A cron line taken apart: one bit for each value that its field names. either
-- says that both day fields are restricted, so that one of them is enough.
create type posthaste.cron as (minutes bigint, hours bigint, days bigint, months bigint, weekdays bigint, either boolean);

-- cron or every is set. next_at is the next tick, the anchor of an interval
-- too, and what was not sent yet once it lies in the past.
create table posthaste.schedule_settings (
  name         text primary key check (name ~ '^[a-z0-9_.-]{1,63}$'),
  queue_id     int         not null references posthaste.queue_settings,
  spec         text        not null,
  cron         posthaste.cron,
  every        interval check (every >= '1 second'),
  time_zone    text        not null,
  catch_up     text        not null check (catch_up in ('each', 'once', 'skip')),
  payload      jsonb       not null,
  options      jsonb       not null,
  next_at      timestamptz not null,
  paused_at    timestamptz,
  last_tick    timestamptz,
  last_id      bigint,
  last_sent_at timestamptz,
  sent         bigint      not null default 0,
  missed       bigint      not null default 0,
  error        text,
  created_at   timestamptz not null default clock_timestamp(),
  changed_at   timestamptz not null default clock_timestamp(),
  check ((cron is null) <> (every is null))
) with (fillfactor = 50);
create index schedule_settings_next on posthaste.schedule_settings (next_at) where paused_at is null;
create index schedule_settings_queue on posthaste.schedule_settings (queue_id);
