-- breaking
-- Queues, their subscriptions, and what sends to them: deduplication, requests that
-- may be repeated, recurring schedules, and tokens of the HTTP API.

-- width        the number of lanes that the operator set
-- prioritized  a message was sent with a priority above 0. The lane of a message is
--              priority × width plus a number below width; until then readers go
--              through width lanes, and from then on through 4 × width
-- kind_lanes   kinds that had messages set aside. The lane of the first is 4 × width,
--              that of the next one more, for good
-- kinds_aside  those whose lanes may hold messages that wait; null: none
-- lanes        above the number of each lane that may have been used
-- kinds_paused those that an operator paused; they are among both others; null: none
-- kind_options options of kinds for their attempts: by kind, as posthaste.attempt_options has
--              those of a message; null: none
-- owner        who declares the queue (posthaste queue apply)
-- purged     what the last purge saw; none of it is kept for any subscription
-- purged_to  the last position that was given out when the queue was purged. A
--            message with a higher id was sent later, so that its withdrawal need not
--            be looked up.
create table posthaste.queue_settings (
  id              int primary key generated always as identity (maxvalue 1048575),
  name            text     collate "C" not null check (name ~ '^[a-z0-9_.-]{1,63}$'),
  max_attempts    int      not null default 20 check (max_attempts between 1 and 1000),
  backoff_base    interval not null default '1 second' check (backoff_base >= '0'),
  backoff_max     interval not null default '1 hour' check (backoff_max >= '0'),
  timeout         interval not null default '30 seconds' check (timeout > '0'),
  max_age         interval check (max_age > '0' and max_age <= '36500 days'),
  max_payload     int      not null default 1048576 check (max_payload between 1 and 33554432),
  width           smallint not null default 1 check (width between 1 and 64),
  prioritized     boolean  not null default false,
  lanes           smallint not null default 1 check (lanes between 1 and 256),
  mode            text     collate "C" not null default 'at_least_once' check (mode in ('at_least_once', 'at_most_once')),
  ordered         boolean  not null default false,
  on_dead         text     collate "C" not null default 'continue' check (on_dead in ('continue', 'stop')),
  fair            boolean  not null default false,
  concurrency     int      check (concurrency between 1 and 100000),
  rate            float8   check (rate > 0),
  burst           float8   check (burst >= 1),
  key_concurrency int      check (key_concurrency between 1 and 100000),
  key_rate        float8   check (key_rate > 0),
  key_burst       float8   check (key_burst >= 1),
  limited         boolean  generated always as (concurrency is not null or rate is not null) stored,
  keyed           boolean  generated always as (ordered or fair or key_concurrency is not null or key_rate is not null) stored,
  retention       interval check (retention > '0' and retention <= '36500 days'),
  retain_payload  boolean  not null default false,
  kind_lanes      text[]   collate "C" not null default '{}',
  kinds_aside     text[]   collate "C",
  kinds_paused    text[]   collate "C",
  kind_options    jsonb,
  owner           text     collate "C",
  paused_at       timestamptz,
  purged          pg_snapshot,
  purged_to       bigint,
  created_at      timestamptz not null default clock_timestamp(),
  dropped_at      timestamptz
);
create unique index queue_settings_name on posthaste.queue_settings (name) where dropped_at is null;

-- starts     'now', or 'oldest': with the oldest message that was kept when the
--            subscription was created
-- scheduled  also takes messages that were sent before it was created and fall due
--            later
-- sifts      its readers leave out entries themselves: by the filter, or because the
--            entries are older than the subscription
-- max_lag    how long the subscription may hold space
-- A dropped queue drops its subscriptions, so that one look at this table is enough.
create table posthaste.subscriptions (
  queue_id   int         not null references posthaste.queue_settings,
  number     smallint    not null check (number between 0 and 1023),
  name       text        collate "C" not null check (name ~ '^[a-z0-9_.-]{1,63}$'),
  starts     text        collate "C" not null default 'now' check (starts in ('now', 'oldest')),
  scheduled  boolean     not null default false,
  sifts      boolean     not null default false,
  since      pg_snapshot not null,
  filter     jsonb,
  max_lag    interval    check (max_lag > '0'),
  created_at timestamptz not null default clock_timestamp(),
  dropped_at timestamptz,
  primary key (queue_id, number)
);
create unique index subscriptions_name on posthaste.subscriptions (queue_id, name) where dropped_at is null;

-- The last message of each deduplication key. Maintenance removes a row when its
-- window is over.
create table posthaste.dedupe_keys (
  queue_id   int         not null,
  key        text        collate "C" not null,
  message_id bigint      not null,
  until      timestamptz not null,
  primary key (queue_id, key)
);
create index dedupe_keys_until on posthaste.dedupe_keys (until);

-- The last holder of each unique key. Whether it still holds the key follows from its state.
-- Maintenance removes a row when its message is finished.
create table posthaste.unique_keys (
  queue_id   int      not null,
  key        text     collate "C" not null,
  message_id bigint   not null,
  until      text     collate "C" not null,
  attempt    smallint not null,
  primary key (queue_id, key)
);
create index unique_keys_message on posthaste.unique_keys (message_id);

-- Earlier holders of unique keys that are not finished, or are dead letters: replaying them
-- needs their keys.
create table posthaste.unique_past (
  message_id bigint primary key,
  queue_id   int    not null,
  key        text   collate "C" not null,
  until      text   collate "C" not null
);

-- Up to which message maintenance has looked for finished holders of unique keys.
create table posthaste.unique_swept (
  one        boolean primary key default true check (one),
  message_id bigint  not null
);
insert into posthaste.unique_swept (message_id) values (0);

-- HTTP requests that the client may repeat, and the messages that they sent. told: what became
-- of each, as JSON; null if all were stored.
-- Maintenance removes a row when its time is over.
create table posthaste.idempotency_keys (
  scope   text        collate "C" not null,
  key     text        collate "C" not null,
  request bytea       not null,
  ids     bigint[]    not null,
  told    jsonb,
  until   timestamptz not null,
  primary key (scope, key)
);
create index idempotency_keys_until on posthaste.idempotency_keys (until);

-- A parsed cron line: one bit for each value that a field names. either: both day
-- fields are restricted, so a day that matches one of them is enough.
create type posthaste.cron as (minutes bigint, hours bigint, days bigint, months bigint, weekdays bigint, either boolean);

-- Recurring schedules: each sends a message at every tick. Rows change with ticks and
-- not with the flow of messages. Either cron or every is set. next_at is the next
-- tick, and the anchor of an interval; a value in the past is a tick that was not
-- sent yet.
create table posthaste.schedule_settings (
  name         text        collate "C" primary key check (name ~ '^[a-z0-9_.-]{1,63}$'),
  queue_id     int         not null references posthaste.queue_settings,
  spec         text        collate "C" not null,
  cron         posthaste.cron,
  every        interval    check (every >= '1 second'),
  time_zone    text        collate "C" not null,
  catch_up     text        collate "C" not null check (catch_up in ('each', 'once', 'skip')),
  payload      jsonb       not null,
  options      jsonb       not null,
  next_at      timestamptz not null,
  paused_at    timestamptz,
  last_tick    timestamptz,
  last_id      bigint,
  last_sent_at timestamptz,
  sent         bigint      not null default 0,
  missed       bigint      not null default 0,
  error        text        collate "C",
  created_at   timestamptz not null default clock_timestamp(),
  changed_at   timestamptz not null default clock_timestamp(),
  check ((cron is null) <> (every is null))
) with (fillfactor = 50);
create index schedule_settings_next on posthaste.schedule_settings (next_at) where paused_at is null;
create index schedule_settings_queue on posthaste.schedule_settings (queue_id);

-- Pauses: of which thing, why and until when. Claims and ticks do not read it: they follow paused_at and
-- kinds_paused of queue_settings, and paused_at of keys and of schedule_settings. A row is written
-- in the transaction that changes those, under the same lock. A pause whose reason or end changes
-- gets a new id.
--   what      queue, key, kind or schedule
--   queue_id  0: a schedule, which may change its queue
--   name      the key, the kind or the schedule; of a queue it is empty
--   by        who paused it or changed this row last
create table posthaste.pauses (
  id       bigint      primary key generated always as identity,
  what     text        collate "C" not null check (what in ('queue', 'key', 'kind', 'schedule')),
  queue_id int         not null,
  name     text        collate "C" not null,
  since    timestamptz not null default clock_timestamp(),
  by       text        collate "C" not null,
  reason   text        collate "C",
  until    timestamptz
);
create unique index pauses_of on posthaste.pauses (queue_id, what, name);
create index pauses_until on posthaste.pauses (until) where until is not null;

-- The result of posthaste.list_pauses.
create type posthaste.pause_listed as (
  id     bigint,
  what   text,
  queue  text,
  name   text,
  since  timestamptz,
  by     text,
  reason text,
  until  timestamptz
);

-- Tokens of the HTTP API. A secret is 256 random bits, so a plain SHA-256 is enough:
-- it cannot be guessed, and a slow hash would protect nothing more. Rows of dropped
-- tokens stay: they record who had one, and that servers of this database require
-- tokens.
create table posthaste.issued_tokens (
  id           int primary key generated always as identity,
  name         text        collate "C" not null check (name ~ '^[a-z0-9_.-]{1,63}$'),
  hash         bytea       not null check (octet_length(hash) = 32),
  scopes       text[]      collate "C" not null check (cardinality(scopes) > 0 and scopes <@ array['read', 'read:payload', 'send', 'receive', 'operate', 'admin']),
  queues       text[]      collate "C" check (cardinality(queues) > 0),
  created_at   timestamptz not null default clock_timestamp(),
  created_by   text        collate "C" not null,
  expires_at   timestamptz,
  last_used_at timestamptz,
  dropped_at   timestamptz,
  dropped_by   text        collate "C"
);
create unique index issued_tokens_name on posthaste.issued_tokens (name) where dropped_at is null;
