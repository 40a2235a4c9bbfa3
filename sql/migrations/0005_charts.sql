-- compatible
-- Figures about the past, for charts. They are no records: after a crash some can be missing.
-- Rows are inserted and read, never updated or deleted.
--
-- Both tables have six parts. 0 to 2 hold the details of two hours each, in turn, and 3 to 5
-- sums by hour, of 16 days each (posthaste.chart_block numbers these blocks). Maintenance
-- truncates a part before its next turn.

-- What workers counted, of each kind of messages.
--   at         when the worker reported; in sums the begin of the hour
--   wait, run  how many messages waited and ran for how long, in buckets that double (below 1 ms,
--              2 ms, 4 ms, and so on), without zeros at the end
--   errors     the most frequent ones: an array of {fingerprint, error, message, count}, in sums
--              also first and last, the times of their reports; null: none
create table posthaste.stats (
  part         smallint    not null,
  at           timestamptz not null,
  queue_id     int         not null,
  subscription smallint    not null,
  kind         text        collate "C" not null,
  version      text        collate "C" not null,
  worker       text        collate "C" not null,
  done         bigint      not null,
  retried      bigint      not null,
  failed       bigint      not null,
  wait         bigint[]    not null,
  run          bigint[]    not null,
  errors       jsonb
) partition by list (part);

-- What maintenance saw of each subscription, if it had changed since the sample before.
--   at             the begin of the minute that the sample is of; in sums of the hour
--   sent..expired  how much the counters grew since the sample before
--   depth..        as they were then; in sums at the end of the hour
--   oldest_age     in seconds; zero if no message waits that may be handed out
create table posthaste.samples (
  part         smallint    not null,
  at           timestamptz not null,
  queue_id     int         not null,
  subscription smallint    not null,
  sent         bigint      not null,
  done         bigint      not null,
  retried      bigint      not null,
  lost         bigint      not null,
  expired      bigint      not null,
  depth        bigint      not null,
  in_flight    bigint      not null,
  dead         bigint      not null,
  oldest_age   float8      not null
) partition by list (part);
do $$
begin
  for p in 0..5 loop
    execute format('create table posthaste.stats_%s partition of posthaste.stats for values in (%1$s)', p);
    execute format('create table posthaste.samples_%s partition of posthaste.samples for values in (%1$s)', p);
  end loop;
end $$;
create index stats_at on posthaste.stats (at);
create index stats_errors on posthaste.stats (at) where errors is not null;
create index samples_at on posthaste.samples (at);

-- How far maintenance is with them.
--   sampled_at      when it took the last sample
--   summed_to       up to which hour the sums are made; later details are in no sum
--   details_block, hours_block  the blocks for which it emptied a part last
create table posthaste.charted (
  only_row      boolean     primary key default true check (only_row),
  sampled_at    timestamptz not null default '-infinity',
  summed_to     timestamptz not null default date_trunc('hour', clock_timestamp(), 'UTC'),
  details_block int         not null default 0,
  hours_block   int         not null default 0
) with (fillfactor = 50);
insert into posthaste.charted default values;

-- The figures of the last sample: sent, done, retried, lost, expired, depth, in flight, dead.
alter table posthaste.counters add column sampled bigint[] not null default '{0,0,0,0,0,0,0,0}';
update posthaste.counters set sampled = array[sent - sifted, done, retried, lost, expired, 0, 0, 0];

-- The bounds of a query (posthaste.chart_span).
create type posthaste.chart_bounds as (begins timestamptz, ends timestamptz, step interval, hours boolean, details_from timestamptz);

-- Rows of public functions.
create type posthaste.stats_listed as (
  at timestamptz, queue text collate "C", subscription text collate "C", kind text collate "C", version text collate "C", worker text collate "C",
  done bigint, retried bigint, failed bigint, wait bigint[], run bigint[]);
create type posthaste.failure_listed as (
  queue text collate "C", subscription text collate "C", kind text collate "C", version text collate "C", fingerprint text collate "C",
  error text collate "C", message_id bigint, count bigint, first_at timestamptz, last_at timestamptz);
create type posthaste.sample_listed as (
  at timestamptz, queue text collate "C", subscription text collate "C", sent bigint, done bigint, retried bigint, lost bigint, expired bigint,
  depth bigint, in_flight bigint, dead bigint, oldest_age interval);
