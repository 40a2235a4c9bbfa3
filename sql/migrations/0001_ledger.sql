-- breaking
-- The ledger: messages, claims and settlements in a ring of 16 slots. Rows of
-- entries, claims, settlements, notes, outcomes and leases are inserted and read, never
-- updated; their space is reclaimed one slot at a time, by TRUNCATE. The tables of
-- the later files are small and change with processes and exceptions only.
--
-- Every text column has collation "C", here and in every later migration. Text in
-- the database's own collation would corrupt the indexes when an upgrade of the C
-- library or of ICU changes the order of strings.

-- The database that this ledger belongs to. A copy made by dump, clone or logical
-- replication has other transaction ids, so an operator must confirm claiming in
-- it first. written_by is the id of the transaction that wrote the row: a row that
-- was restored or replicated was written by another one, while pg_upgrade and
-- physical copies keep both ids.
create table posthaste.identity (
  only_row          boolean primary key default true check (only_row),
  system_identifier bigint  not null,
  database_oid      oid     not null,
  written_by        xid,
  installation      uuid    not null default gen_random_uuid()
);
insert into posthaste.identity (system_identifier, database_oid)
select (select system_identifier from pg_control_system()), d.oid
  from pg_catalog.pg_database d where d.datname = current_database();
-- A second statement, because only a row that exists knows its xmin: within a
-- savepoint that is not the id of the transaction.
update posthaste.identity set written_by = xmin;

-- Has its row unless the server crashed or was promoted, which empties unlogged
-- tables. Then ids of claims whose commit was not flushed could be issued a second
-- time, unless the sequence jumps first. started is the start of the server that
-- was last confirmed as the original, and not a physical copy of it.
create unlogged table posthaste.since_crash (
  only_row boolean     primary key default true check (only_row),
  at       timestamptz not null default clock_timestamp(),
  started  timestamptz
);
insert into posthaste.since_crash (started) values (pg_postmaster_start_time());

-- Tells by the size of its index whether posthaste.skip_ids has run since the last
-- crash, promotion or restore: one page before, two pages after. The table itself
-- never keeps a row, because a dump would contain it, and no vacuum makes the index
-- smaller. Here the ledger is new and has no ids to skip.
create unlogged table posthaste.skipped (at timestamptz not null default clock_timestamp());
create index skipped_at on posthaste.skipped (at);
insert into posthaste.skipped default values;
delete from posthaste.skipped;

-- Settings of the whole ledger. Operators change them by hand only.
create table posthaste.settings (
  only_row    boolean  primary key default true check (only_row),
  slot_rows   bigint   not null default 2097152 check (slot_rows between 1 and 4194304),
  slot_bytes  bigint   not null default 402653184 check (slot_bytes > 0),
  spare_slots int      not null default 6 check (spare_slots between 1 and 15),
  carry_after interval not null default '1 minute'
);
insert into posthaste.settings default values;

-- Positions of entries and ids of claims. CACHE 1, because the order within a key
-- depends on it.
create sequence posthaste.positions as bigint start 1 cache 1;

-- The position that posthaste.skip_ids last moved the sequence away from.
create sequence posthaste.skipped_from as bigint minvalue 0 start 0 cache 1;

-- The 16 slots of the ring.
--   epoch        position >> 22 of the slot's present life
--   cleared_to   the last position that the latest truncation removed. Withdrawals
--                may be forgotten up to there and no further: a ledger that was not
--                maintained for a whole revolution has entries of several
--                revolutions in one slot.
--   left_before  every transaction that took a position of the slot has an id below
--                this one; null while the sequence is in the slot
create table posthaste.slots (
  slot        smallint    primary key check (slot between 0 and 15),
  live        boolean     not null,
  epoch       bigint      not null,
  cleared_to  bigint      not null default -1,
  left_before xid8,
  marked_by   xid8,
  opened_at   timestamptz not null default clock_timestamp()
) with (fillfactor = 50);
insert into posthaste.slots (slot, live, epoch) select s, s = 0, s from generate_series(0, 15) s;

-- The slots that may hold rows, as up to three runs of the ring: a to b, c to d and
-- e to f (1 to 0 is an empty run). Scalars, because the planner prunes partitions by
-- those; and few, because every statement sets up the filter of each partition. A
-- run may include free slots, which are empty.
create type posthaste.live as (a bigint, b bigint, c bigint, d bigint, e bigint, f bigint);

-- An entry without its payload, as operators look at it. message_id is the position
-- of the message's first entry, in that entry too.
create type posthaste.head as (
  message_id bigint, pos bigint, xid xid8, queue_id int, lane smallint, created_at timestamptz, due_at timestamptz, for_subscription smallint,
  attempt smallint, failures smallint, losses smallint, content_type text, key text, kind text, reference text, headers jsonb, terms text[], story jsonb);

-- What most messages are: handed out at once, in no order of their keys, once. Such a
-- row costs a send the least: few columns, two indexes. more holds what few messages
-- have: content_type, reference, headers and terms. The view posthaste.entries shows
-- these rows and the others alike.
-- xid stands before pos on purpose: PostgreSQL evaluates defaults in this order, so a
-- writer has a transaction id before it takes a position. Reclaiming relies on that: a
-- position of a slot can only come from a transaction that was in progress when the
-- sequence left the slot.
create table posthaste.entries_plain (
  xid        xid8        not null default pg_current_xact_id(),
  pos        bigint      not null default nextval('posthaste.positions'),
  created_at timestamptz not null default statement_timestamp(),
  queue_id   int         not null,
  lane       smallint    not null default 0,
  key        text        collate "C",
  kind       text        collate "C",
  trace      text        collate "C",
  more       jsonb,
  payload    bytea       not null
) partition by list (((pos >> 22) & 15));

-- All other entries: those with a due time (scheduled messages, retries, events of
-- lanes), and those of keyed queues (ordered, fair, or with limits for each key), which
-- have a place in the order (ord). ages_from is the time from which the age of a message
-- counts, if that is neither created_at nor the due_at of its first entry.
create table posthaste.entries_other (
  xid              xid8        not null default pg_current_xact_id(),
  pos              bigint      not null default nextval('posthaste.positions'),
  ord              xid8,
  message_id       bigint,
  created_at       timestamptz not null default statement_timestamp(),
  due_at           timestamptz,
  queue_id         int         not null,
  lane             smallint    not null default 0,
  for_subscription smallint,
  attempt          smallint    not null default 1,
  failures         smallint    not null default 0,
  losses           smallint    not null default 0,
  losses_alone     smallint    not null default 0,
  ages_from        timestamptz,
  content_type     text        collate "C",
  key              text        collate "C",
  kind             text        collate "C",
  reference        text        collate "C",
  headers          jsonb,
  terms            text[]      collate "C",
  trace            text        collate "C",
  story            jsonb,
  payload          bytea       not null
) partition by list (((pos >> 22) & 15));

-- By which words a message is found: 'r' and its reference, 't' and each of its terms.
-- slot is that of the row that has the word: an entry, or the outcome of a handler that
-- found the term. With an xid the entry is in entries_plain, by its key there
-- (queue_id, lane, xid, pos); others are found by pos.
create table posthaste.words (
  slot       bigint   not null,
  message_id bigint   not null,
  pos        bigint   not null,
  xid        xid8,
  queue_id   int      not null,
  lane       smallint not null,
  word       text     collate "C" not null
) partition by list (slot);

-- Ranges of messages that were handed out. The newest claim of a reader is also its
-- cursor.
--   sifted    how many entries the reader's subscription left out so far; null for
--             subscriptions that take every message
-- Of queues that are ordered, fair or limited by key alone:
--   withheld  places that were settled when the claim was made: parked or cancelled
--   expired   places that were settled when the claim was made: too old to be handed out,
--             or of a paused kind; null if there are none
--   keys      a hash of each place's key, where the running messages of a key count
--   open      claims of the lane that were open when this row was written
--   busy      hashes of the keys of their unsettled places
--   turns     in the cursor of a lane's events: where the two lines of keys begin
--             (keys.early above 0, and the others), so that dead index entries
--             before it are not read again; and the last number given
create table posthaste.claims (
  slot         bigint      not null,
  places       smallint    not null,
  part         smallint    not null,
  single       boolean     not null,
  alone        boolean     not null,
  ended        boolean     not null,
  id           bigint      not null,
  reader       bigint      not null,
  seq          bigint      not null,
  total        bigint      not null,
  holder       bigint,
  number       bigint,
  at           timestamptz not null default clock_timestamp(),
  window_claim bigint,
  first_xid    xid8,
  first_pos    bigint,
  last_xid     xid8,
  last_pos     bigint,
  first_due    timestamptz,
  last_due     timestamptz,
  t0           timestamptz,
  t1           timestamptz,
  sifted       bigint,
  s0           pg_snapshot,
  s1           pg_snapshot,
  withheld     bit varying,
  expired      bit varying,
  keys         bigint[],
  open         bigint[],
  busy         bigint[],
  turns        bigint[],
  primary key (slot, id)
) partition by list (slot);

-- One bit for each place of a claim that was settled.
create table posthaste.settlements (
  slot      bigint      not null,
  part      smallint    not null,
  number    smallint    not null,
  fresh     smallint    not null,
  claim     bigint      not null,
  xid       xid8        not null default pg_current_xact_id(),
  reader    bigint      not null,
  at        timestamptz not null default clock_timestamp(),
  worker    bigint,
  duration  real,
  done      smallint    not null default 0,
  bits      bit varying not null,
  primary key (slot, claim, part, number)
) partition by list (slot);

-- Notes about a delivery while it ran: checkpoints, progress and log lines of its handler, and
-- that its message was cancelled (cancel). The newest row of a delivery that has a
-- value is the one that counts. last: the delivery ended otherwise than done, and this row is
-- the last one: its unique key decides between a note and the end of the delivery
-- (posthaste.put_note, posthaste.close_notes).
create table posthaste.notes (
  slot          bigint      not null,
  claim         bigint      not null,
  place         smallint    not null,
  number        int         not null,
  last          boolean     not null default false,
  cancel        boolean     not null default false,
  progress      real,
  at            timestamptz not null default clock_timestamp(),
  checkpoint    jsonb,
  progress_text text        collate "C",
  log           text        collate "C",
  primary key (slot, claim, place, number)
) partition by list (slot);

-- How a delivery ended, where a bit cannot tell all of it: failures, receipts and
-- terms. terms are what the handler named to find the message by, where the message
-- was sent without terms and no later entry or dead letter has them.
create table posthaste.outcomes (
  slot       bigint      not null,
  place      smallint    not null,
  attempt    smallint    not null,
  claim      bigint      not null,
  pos        bigint      not null,
  message_id bigint      not null,
  reader     bigint      not null,
  at         timestamptz not null default clock_timestamp(),
  worker     bigint,
  duration   real,
  xid        xid8        not null default pg_current_xact_id(),
  due_at     timestamptz,
  outcome    text        collate "C" not null,
  error      text        collate "C",
  receipt    jsonb,
  terms      text[]      collate "C",
  primary key (slot, claim, place)
) partition by list (slot);

-- The ends of leases by time: one row for a received claim (place is null), and one
-- for each extension of a single delivery.
create table posthaste.leases (
  slot       bigint      not null,
  place      smallint,
  claim      bigint      not null,
  subscriber bigint      not null,
  xid        xid8        not null default pg_current_xact_id(),
  until      timestamptz not null
) partition by list (slot);

do $$
declare
  t text;
begin
  -- Compressing payloads with pglz costs more than it saves; with lz4 it does not.
  -- Partitions inherit this.
  if exists (select from pg_catalog.pg_settings where name = 'default_toast_compression' and 'lz4' = any (enumvals)) then
    alter table posthaste.entries_plain alter column payload set compression lz4;
    alter table posthaste.entries_other alter column payload set compression lz4;
  else
    alter table posthaste.entries_plain alter column payload set storage external;
    alter table posthaste.entries_other alter column payload set storage external;
  end if;
  foreach t in array array['entries_plain', 'entries_other', 'words', 'claims', 'settlements', 'notes', 'outcomes', 'leases'] loop
    for s in 0..15 loop
      execute format('create table posthaste.%I partition of posthaste.%I for values in (%s) with (autovacuum_enabled = off, toast.autovacuum_enabled = off)',
        t || '_' || s, t, s);
      -- Without a primary key a publication of all tables would refuse deletes.
      if t in ('entries_plain', 'entries_other', 'words', 'leases') then
        execute format('alter table posthaste.%I replica identity full', t || '_' || s);
      end if;
    end loop;
  end loop;
end $$;

-- The condition is always true. It keeps the planner from walking through the whole index
-- for an entry that is looked up by pos alone: see the view posthaste.entries.
create index entries_plain_log on posthaste.entries_plain (queue_id, lane, xid, pos) where lane >= 0;
create index entries_plain_pos on posthaste.entries_plain using brin (pos) with (pages_per_range = 32);
create index entries_other_pos on posthaste.entries_other using brin (pos) with (pages_per_range = 32);
create index entries_other_message on posthaste.entries_other (message_id) where message_id is not null;
create index entries_other_due_xid on posthaste.entries_other (queue_id, lane, xid, pos) where due_at is not null;
create index entries_other_due on posthaste.entries_other (queue_id, lane, due_at, pos) where due_at is not null;
-- Keyed queues are read by (ord, pos). ord is mostly the id of the
-- transaction that sent, so this index also finds what a late transaction sent
-- before the beginning of the window. Only messages that it sent later in its life,
-- or beside others that ended, need the index after it, and few messages are in it.
-- Events and scheduled messages have a due time, and are on the due track.
create index entries_other_ordered on posthaste.entries_other (queue_id, lane, ord, pos) where ord is not null and due_at is null;
create index entries_other_late on posthaste.entries_other (queue_id, lane, xid, ord, pos) where ord is not null and due_at is null and ord <> xid;
create index words_word on posthaste.words (word, queue_id, message_id);

create index claims_reader on posthaste.claims (reader, seq);
create index claims_holder on posthaste.claims (holder, number) where holder is not null;
create index settlements_xid on posthaste.settlements (xid);
create index outcomes_xid on posthaste.outcomes (xid);
create index leases_xid on posthaste.leases (subscriber, xid);
create index leases_until on posthaste.leases (subscriber, until);
create index leases_claim on posthaste.leases (claim);

-- Sends under REPEATABLE READ and SERIALIZABLE insert here to learn the id of a
-- subtransaction, which they roll back. So the table never has a row.
create unlogged table posthaste.order_marks ();
