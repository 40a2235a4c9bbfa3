-- breaking
-- Records for operators: dead letters, actions, counters, and the history of queues
-- that retain settled messages.

create table posthaste.dead_letter_entries (
  message_id   bigint      not null,
  subscription smallint    not null,
  queue_id     int         not null references posthaste.queue_settings,
  lane         smallint    not null,
  pos          bigint      not null,
  ord          xid8,
  attempt      smallint    not null,
  created_at   timestamptz not null,
  died_at      timestamptz not null default clock_timestamp(),
  erased_at    timestamptz,
  content_type text        collate "C",
  key          text        collate "C",
  kind         text        collate "C",
  reference    text        collate "C",
  headers      jsonb,
  terms        text[]      collate "C",
  trace        text        collate "C",
  error        text        collate "C" not null,
  story        jsonb       not null,
  payload      bytea       not null,
  primary key (queue_id, message_id, subscription)
);
create index dead_letter_entries_message on posthaste.dead_letter_entries (message_id);
create index dead_letter_entries_died on posthaste.dead_letter_entries (died_at);
create index dead_letter_entries_key on posthaste.dead_letter_entries (queue_id, key, message_id) where key is not null;
create index dead_letter_entries_kind on posthaste.dead_letter_entries (queue_id, kind, message_id) where kind is not null;
create index dead_letter_entries_reference on posthaste.dead_letter_entries (queue_id, reference, message_id) where reference is not null;
create index dead_letter_entries_terms on posthaste.dead_letter_entries using gin (terms) with (gin_pending_list_limit = 256) where terms is not null;

-- A filter of dead letters; a null field matches all of them.
create type posthaste.dead_filter as (
  queue_id int, subscription smallint, kind text, key text, reference text, term text, error text, died_from timestamptz, died_before timestamptz);

-- What operators did, and who did it. The view posthaste.actions shows the rows, and
-- takes new ones.
create table posthaste.action_records (
  id         bigint primary key generated always as identity,
  at         timestamptz not null default clock_timestamp(),
  by         text        collate "C" not null,
  action     text        collate "C" not null,
  message_id bigint,
  queue_id   int,
  details    jsonb
);
create index action_records_message on posthaste.action_records (message_id);
create index action_records_queue on posthaste.action_records (queue_id, id);

-- Rows of public functions. As columns of a result their names would not be free for the
-- functions' parameters.
create type posthaste.message_listed as (
  message_id bigint, queue text collate "C", subscription text collate "C", state text collate "C", due_at timestamptz, key text collate "C", kind text collate "C", headers jsonb,
  reference text collate "C", terms text[] collate "C", content_type text collate "C", created_at timestamptz, attempts jsonb, erased_at timestamptz);
create type posthaste.message_found as (
  message_id bigint, queue text collate "C", subscription text collate "C", state text collate "C", due_at timestamptz, key text collate "C", kind text collate "C", headers jsonb,
  reference text collate "C", terms text[] collate "C", content_type text collate "C", payload bytea, created_at timestamptz, attempts jsonb, erased_at timestamptz, version text, options jsonb);
create type posthaste.action_listed as (
  id bigint, at timestamptz, by text collate "C", action text collate "C", queue text collate "C", message_id bigint, details jsonb);

-- Sums of the log. Maintenance adds all rows that are newer than counted.s.
create table posthaste.counters (
  queue_id     int         not null,
  subscription smallint    not null,
  sent         bigint      not null default 0,
  again        bigint      not null default 0,
  handed       bigint      not null default 0,
  done         bigint      not null default 0,
  settled      bigint      not null default 0,
  retried      bigint      not null default 0,
  lost         bigint      not null default 0,
  expired      bigint      not null default 0,
  dropped      bigint      not null default 0,
  sifted       bigint      not null default 0,
  before_sent  bigint      not null default 0,
  before_done  bigint      not null default 0,
  before_at    timestamptz,
  counted_at   timestamptz not null default clock_timestamp(),
  primary key (queue_id, subscription)
) with (fillfactor = 50);

-- How far the log was added to the counters.
create table posthaste.counted (
  only_row   boolean     primary key default true check (only_row),
  s          pg_snapshot not null,
  last_value bigint      not null default 0,
  at         timestamptz not null default clock_timestamp()
) with (fillfactor = 50);
insert into posthaste.counted (s) values (pg_current_snapshot());

-- Settled messages of queues with a retention, one row for each subscription, copied
-- before their slot of the ring is reclaimed. Space is reclaimed one part at a time:
-- a part is truncated when the last of its rows has expired.
create table posthaste.history (
  part         smallint    not null,
  subscription smallint    not null,
  queue_id     int         not null,
  message_id   bigint      not null,
  created_at   timestamptz not null,
  settled_at   timestamptz not null,
  expires_at   timestamptz not null,
  erased_at    timestamptz,
  state        text        collate "C" not null,
  content_type text        collate "C",
  key          text        collate "C",
  kind         text        collate "C",
  reference    text        collate "C",
  headers      jsonb,
  terms        text[]      collate "C",
  attempts     jsonb       not null,
  payload      bytea,
  primary key (part, queue_id, message_id, subscription)
) partition by list (part);
do $$
begin
  for p in 0..15 loop
    execute format('create table posthaste.history_%s partition of posthaste.history for values in (%1$s)', p);
  end loop;
end $$;
create index history_message on posthaste.history (message_id);
create index history_key on posthaste.history (queue_id, key, message_id) where key is not null;
create index history_reference on posthaste.history (queue_id, reference, message_id) where reference is not null;
create index history_terms on posthaste.history using gin (terms) with (gin_pending_list_limit = 256) where terms is not null;

-- The parts in use, and the time after which nothing in them is retained.
create table posthaste.history_parts (
  part  smallint    primary key check (part between 0 and 15),
  until timestamptz not null
);

-- How far each reader's claims were copied to the history, except those in
-- history_aside.
create table posthaste.history_cursors (
  reader bigint primary key,
  seq    bigint not null
) with (fillfactor = 50);

-- Claims that were still open when the copy passed them.
create table posthaste.history_aside (
  reader bigint not null,
  claim  bigint not null,
  primary key (reader, claim)
);

-- Settled messages whose content must not be shown any more, although it stays in the
-- ring until its slot is reclaimed. pos is the position that the sequence had reached:
-- a row is removed when no slot holds anything older.
create table posthaste.erased (
  message_id bigint      primary key,
  pos        bigint      not null,
  at         timestamptz not null default clock_timestamp()
);
create index erased_pos on posthaste.erased (pos);
