-- breaking
-- Delivery: workers, and the exceptions to a plain log. Rows of keys, parked and
-- lane_wishes grow with keys that wait, and not with the flow of messages.
-- A subscriber is queue id << 10 | number of the subscription.

-- Workers.
--   environment  where the worker says it runs. A worker from another environment
--                is how a physical copy is told from the original after a start of
--                the server.
--   oldest_open  no claim of the worker below this number is open, except stragglers
--   cleared      the worker is gone, and none of its claims is open
--   kinds        the kinds that it handles, by queue and subscription, of those in which it
--                does not handle all
--   sinks        the subscriptions that it delivers to external systems, with their destinations
--   looked       the place in the worker's list of queues where its next look begins
create table posthaste.registrations (
  id           bigint primary key generated always as identity,
  name         text        collate "C" not null,
  version      text        collate "C" not null,
  environment  text        collate "C",
  lease        interval    not null,
  started_at   timestamptz not null default clock_timestamp(),
  heartbeat_at timestamptz not null default clock_timestamp(),
  lost_at      timestamptz,
  ended_at     timestamptz,
  cleared      boolean     not null default false,
  oldest_open  bigint      not null default 0,
  looked       int         not null default 0,
  kinds        jsonb,
  sinks        jsonb,
  load         jsonb
) with (fillfactor = 50);

-- Claims that stayed open while very many later claims of the same worker were
-- closed. A row is an exception, and is removed when its claim is closed.
create table posthaste.stragglers (
  worker bigint not null,
  claim  bigint not null,
  primary key (worker, claim)
);

-- Deliveries whose message was cancelled while they ran. Their notes decide how they end. These
-- rows tell their holders: a worker by its heartbeat, a receiver (worker 0) when it extends its
-- lease. A row is an exception, and upkeep removes it after the delivery has ended.
create table posthaste.cancel_requests (
  delivery bigint primary key,
  worker   bigint not null
);
create index cancel_requests_worker on posthaste.cancel_requests (worker);

-- How far the ends of leases were examined, per subscriber.
create table posthaste.lease_cursors (
  subscriber bigint      primary key,
  s          pg_snapshot not null,
  t          timestamptz not null
) with (fillfactor = 50);

-- Received claims whose lease ended while another transaction was settling a part of
-- them, or whose rescue failed. Maintenance tries again at next_try. A row is an
-- exception, and is removed when nothing of its claim is held. tries counts the
-- attempts that failed with an error; error is the last one.
create table posthaste.held_claims (
  subscriber bigint      not null,
  claim      bigint      not null,
  next_try   timestamptz not null,
  tries      int         not null default 0,
  error      text        collate "C",
  primary key (subscriber, claim)
);

-- Entries that no claim of the subscription will hand out any more. A row lives as
-- long as the slot of its entry, because a slice reads it each time.
--   xid     of the entry, if it is fresh: an index tells a claim whether such an
--           entry lies ahead
--   noted   the transaction that withdrew the entry, for counting; 3: not counted
--   copied  the history has it
create table posthaste.cancelled (
  pos        bigint      not null,
  subscriber bigint      not null,
  at         timestamptz not null default clock_timestamp(),
  xid        xid8,
  noted      xid8        not null default pg_current_xact_id(),
  copied     boolean     not null default false,
  outcome    text        collate "C" not null,
  primary key (pos, subscriber)
);
create index cancelled_fresh on posthaste.cancelled (subscriber, xid) where xid is not null;
create index cancelled_noted on posthaste.cancelled (noted);

-- Entries carried out of a slot and cancelled there: all entries of the lane that are due
-- after since, up to the key (due_at, pos). Removed with the slot's content.
create table posthaste.carried (
  slot     smallint    not null,
  queue_id int         not null,
  lane     smallint    not null,
  since    timestamptz not null,
  due_at   timestamptz not null,
  pos      bigint      not null,
  primary key (slot, queue_id, lane)
);

-- Keys in an exceptional state: some of their messages are parked, or they are
-- paused, stopped by a dead letter, or short of tokens. Written under the lock of
-- their lane only.
--   blocked       some of its messages are parked, and none below (low_ord, low_id),
--                 so that dead index entries below are not read again
--   waits         for a running message of the key to end
--   wake_at       an event is on its way for this time
--   turn          the place in the line of keys that may have a message to hand out;
--                 null: in no line. Only blocked keys are in line.
--   early         how many more of its messages may be parked before the key counts as
--                 one with many; keys with few have a line of their own
--   tokens_since  tokens_at in steps of five minutes. Each claim takes tokens, and an
--                 update of an indexed column writes every index of the row.
create table posthaste.keys (
  subscriber   bigint      not null,
  hash         bigint      not null,
  lane         smallint    not null,
  early        smallint    not null default 0,
  blocked      boolean     not null default false,
  waits        boolean     not null default false,
  low_ord      xid8        not null default '0',
  low_id       bigint      not null default 0,
  wake_at      timestamptz,
  paused_at    timestamptz,
  stopped_by   bigint,
  turn         bigint,
  tokens       float8,
  tokens_at    timestamptz,
  tokens_since timestamp   generated always as (date_bin('5 minutes', tokens_at at time zone 'UTC', timestamp '2000-01-01')) stored,
  key          text        collate "C" not null,
  primary key (subscriber, key)
) with (fillfactor = 50);
-- Lists paused keys.
create index keys_paused on posthaste.keys (subscriber, key) where paused_at is not null;
-- Buckets that maintenance may remove once they are full again.
create index keys_tokens on posthaste.keys (subscriber, tokens_since)
  where tokens is not null and not blocked and paused_at is null and stopped_by is null;
-- Every claim and every settlement asks whether a key of the lane waits, and must not
-- read all keys with parked messages for it.
create index keys_waits on posthaste.keys (subscriber, lane, hash) where waits;
create index keys_turn on posthaste.keys (subscriber, lane, turn) where turn is not null and early = 0;
create index keys_turn_early on posthaste.keys (subscriber, lane, turn) where turn is not null and early > 0;
-- Serves only queries that say lane >= 0: a query for one key must not be led through
-- all keys of its lane instead.
create index keys_lane on posthaste.keys (subscriber, lane) where lane >= 0;

-- Messages that were reached, or came back, and may not start yet: an earlier message
-- of the key runs or waits, or the key has no token, no free place, or is paused. In
-- the order in which they were sent. pos is the last entry that the message stood in;
-- the indexes by reference and terms find it when that entry is gone.
create table posthaste.parked (
  subscriber   bigint      not null,
  ord          xid8        not null,
  message_id   bigint      not null,
  pos          bigint,
  not_before   timestamptz,
  parked_at    timestamptz not null default clock_timestamp(),
  created_at   timestamptz not null,
  lane         smallint    not null,
  attempt      smallint    not null,
  failures     smallint    not null,
  losses       smallint    not null,
  losses_alone smallint    not null,
  ages_from    timestamptz,
  key          text        collate "C" not null,
  reason       text        collate "C" not null,
  content_type text        collate "C",
  kind         text        collate "C",
  reference    text        collate "C",
  headers      jsonb,
  terms        text[]      collate "C",
  trace        text        collate "C",
  story        jsonb,
  payload      bytea       not null,
  primary key (subscriber, key, ord, message_id)
);
-- With the subscriber: by the id alone, the planner may take the primary key instead,
-- and read everything that a subscriber has parked.
create index parked_message on posthaste.parked (message_id, subscriber);
create index parked_reference on posthaste.parked (reference) where reference is not null;
create index parked_terms on posthaste.parked using gin (terms) where terms is not null;

-- Which worker asks for a lane of an ordered queue that another worker holds.
create table posthaste.lane_wishes (
  subscriber bigint      not null,
  lane       smallint    not null,
  worker     bigint      not null,
  at         timestamptz not null default clock_timestamp(),
  primary key (subscriber, lane)
);

-- The state of a queue's own limits: the newest row of a subscriber counts, and
-- maintenance removes the others. open: its claims that were open. full_since: since
-- when the concurrency is used up; while it is, every settlement wakes the workers
-- that wait for a free place.
create table posthaste.limit_states (
  subscriber bigint      not null,
  id         bigint      not null,
  at         timestamptz not null,
  full_since timestamptz,
  tokens     float8,
  open       bigint[]    not null,
  primary key (subscriber, id)
);

-- Tokens of a queue's rate limit that go back to it: those of messages that were set
-- aside. The next claim removes the row.
create table posthaste.limit_refunds (
  subscriber bigint not null,
  tokens     int    not null
);
-- Without a primary key a publication of all tables would refuse deletes.
alter table posthaste.limit_refunds replica identity full;

-- How far a fair queue's lane was read ahead of its cursor, whose window is (base0,
-- base1): up to (last_xid, last_pos) of the window (s0, s1), how much was parked, and
-- whether nothing was left to read then. The newest row counts, and maintenance
-- removes the others, so that an old snapshot holds up no claim. reading tells the
-- keys of this reading from those of others; null: the reading is over. Written under
-- the lock of the lane only.
create table posthaste.ahead (
  subscriber bigint      not null,
  lane       smallint    not null,
  id         bigint      not null,
  reading    bigint,
  base0      pg_snapshot not null,
  base1      pg_snapshot not null,
  s0         pg_snapshot not null,
  s1         pg_snapshot not null,
  last_xid   xid8        not null,
  last_pos   bigint      not null,
  parked     bigint      not null,
  complete   boolean     not null,
  primary key (subscriber, lane, id)
);

-- The keys that a reading ahead found: how many messages of each were parked, and
-- whether others of the key were left in the log.
create table posthaste.ahead_keys (
  subscriber  bigint   not null,
  lane        smallint not null,
  reading     bigint   not null,
  key         text     collate "C" not null,
  parked      bigint   not null,
  left_in_log boolean  not null,
  primary key (subscriber, lane, reading, key)
) with (fillfactor = 70);
