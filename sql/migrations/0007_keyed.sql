-- compatible
-- Queues that look at keys: ordered ones, and limits for each key. And limits of
-- whole queues. Rows of keys, parked and lane_wishes are exceptions: they grow
-- with keys that wait, and not with the flow of messages.

alter table posthaste.queue_settings
  add on_dead        text   not null default 'continue' check (on_dead in ('continue', 'stop')),
  add fair           boolean not null default false,
  add concurrency    int    check (concurrency between 1 and 100000),
  add rate           float8 check (rate > 0),
  add burst          float8 check (burst >= 1),
  add key_concurrency int   check (key_concurrency between 1 and 100000),
  add key_rate       float8 check (key_rate > 0),
  add key_burst      float8 check (key_burst >= 1),
  add limited boolean generated always as (concurrency is not null or rate is not null) stored,
  add keyed boolean generated always as (ordered or fair or key_concurrency is not null or key_rate is not null) stored;

-- Of claims of queues with such options alone:
--   withheld  places that were settled when the claim was made: parked, cancelled
--   keys      a hash of each place's key, where runs of a key are counted
--   open      claims of the lane that were open when this row was written
--   busy      hashes of the keys of their unsettled places
alter table posthaste.claims add withheld bit varying, add keys bigint[], add open bigint[], add busy bigint[];

-- The log of keyed queues is read by (ord, pos); what late transactions put into
-- it before the window's beginning, by their ids. Events and scheduled messages
-- have a due time and are on the due track.
drop index posthaste.entries_ordered;
create index entries_ordered on posthaste.entries (queue_id, lane, ord, pos) where ord is not null and due_at is null;
create index entries_ordered_xid on posthaste.entries (queue_id, lane, xid, ord, pos) where ord is not null and due_at is null;

-- Keys that are out of the ordinary for a subscriber (queue id << 10 |
-- subscription): something of them is parked, or they are paused, stopped by a
-- dead message, or short of tokens. Written under their lane's lock alone.
-- blocked: something of it is parked, and nothing below (low_ord, low_id), so that
-- what lies dead there is not walked over. waits: for a run of it to end.
-- wake_at: an event is on its way for then.
create table posthaste.keys (
  subscriber bigint      not null,
  key        text        not null,
  lane       smallint    not null,
  hash       bigint      not null,
  blocked    boolean     not null default false,
  low_ord    xid8        not null default '0',
  low_id     bigint      not null default 0,
  waits      boolean     not null default false,
  wake_at    timestamptz,
  paused_at  timestamptz,
  stopped_by bigint,
  tokens     float8,
  tokens_at  timestamptz,
  primary key (subscriber, key)
) with (fillfactor = 50);
create index keys_lane on posthaste.keys (subscriber, lane, hash);

-- Messages that were reached, or came back, and may not start yet: an earlier
-- one of the key runs or waits, or the key has no token, no free place, or is
-- paused. In the order in which they were sent.
create table posthaste.parked (
  subscriber   bigint      not null,
  key          text        not null,
  ord          xid8        not null,
  message_id   bigint      not null,
  lane         smallint    not null,
  not_before   timestamptz,
  reason       text        not null,
  parked_at    timestamptz not null default clock_timestamp(),
  created_at   timestamptz not null,
  attempt      smallint    not null,
  failures     smallint    not null,
  losses       smallint    not null,
  losses_alone smallint    not null,
  content_type text,
  kind         text,
  reference    text,
  headers      jsonb,
  terms        text[],
  trace        text,
  story        jsonb,
  payload      bytea       not null,
  primary key (subscriber, key, ord, message_id)
);
create index parked_message on posthaste.parked (message_id);

-- Which worker would like to have a lane of an ordered queue that another holds.
create table posthaste.lane_wishes (
  subscriber bigint      not null,
  lane       smallint    not null,
  worker     bigint      not null,
  at         timestamptz not null default clock_timestamp(),
  primary key (subscriber, lane)
);

-- Where a queue's own limits stand: the newest row of a subscriber counts, and
-- maintenance removes the others. open: its claims that were open.
create table posthaste.limit_states (
  subscriber bigint      not null,
  id         bigint      not null,
  at         timestamptz not null,
  tokens     float8,
  open       bigint[]    not null,
  primary key (subscriber, id)
);

-- Written by sends under REPEATABLE READ and SERIALIZABLE, for the id of a
-- subtransaction that is rolled back: it never has a row.
create unlogged table posthaste.order_marks ();
