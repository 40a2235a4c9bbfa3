-- breaking
-- The ledger: rows of the ring (entries, claims, settlements, outcomes, leases)
-- are inserted and read, never updated, and reclaimed a slot at a time. The
-- tables above them are small and change with processes and exceptions only.

-- Who this database is. A copy made by dump, clone or logical replication has
-- other transaction ids, so that claiming in it must be confirmed first.
create table posthaste.identity (
  only_row          boolean primary key default true check (only_row),
  system_identifier bigint  not null,
  database_oid      oid     not null,
  installation      uuid    not null default gen_random_uuid()
);

-- Empty after a crash of the database or a promotion, for that is what becomes
-- of unlogged tables: ids of claims whose commit was not flushed may be issued
-- again then, unless the sequence jumps first.
create unlogged table posthaste.since_crash (
  only_row boolean primary key default true check (only_row),
  at       timestamptz not null default clock_timestamp()
);
insert into posthaste.since_crash default values;

-- Its index has one page after a crash, a promotion or a restore, for the same reason, and
-- two from then on: see posthaste.skip_ids. The table never keeps a row, which a dump would
-- contain, and no vacuum makes the index smaller.
create unlogged table posthaste.skipped (at timestamptz not null default clock_timestamp());
create index skipped_at on posthaste.skipped (at);
insert into posthaste.skipped default values;
delete from posthaste.skipped;

-- Settings of the whole ledger, changed by hand only.
create table posthaste.settings (
  only_row    boolean primary key default true check (only_row),
  slot_rows   bigint  not null default 2097152 check (slot_rows between 1 and 4194304),
  slot_bytes  bigint  not null default 402653184 check (slot_bytes > 0),
  spare_slots int     not null default 6 check (spare_slots between 1 and 15),
  carry_after interval not null default '1 minute'
);
insert into posthaste.settings default values;

create table posthaste.queue_settings (
  id           int primary key generated always as identity (maxvalue 1048575),
  name         text        not null check (name ~ '^[a-z0-9_.-]{1,63}$'),
  max_attempts int         not null default 20 check (max_attempts between 1 and 1000),
  backoff_base interval    not null default '1 second' check (backoff_base >= '0'),
  backoff_max  interval    not null default '1 hour' check (backoff_max >= '0'),
  timeout      interval    not null default '30 seconds' check (timeout > '0'),
  max_payload  int         not null default 1048576 check (max_payload between 1 and 33554432),
  lanes        smallint    not null default 1 check (lanes between 1 and 64),
  ordered      boolean     not null default false,
  mode         text        not null default 'at_least_once' check (mode in ('at_least_once', 'at_most_once')),
  retention    interval,
  paused_at    timestamptz,
  created_at   timestamptz not null default clock_timestamp(),
  dropped_at   timestamptz
);
create unique index queue_settings_name on posthaste.queue_settings (name) where dropped_at is null;

create table posthaste.subscriptions (
  queue_id   int         not null references posthaste.queue_settings,
  number     smallint    not null check (number between 0 and 1023),
  name       text        not null check (name ~ '^[a-z0-9_.-]{1,63}$'),
  since      pg_snapshot not null,
  filter     jsonb,
  created_at timestamptz not null default clock_timestamp(),
  dropped_at timestamptz,
  primary key (queue_id, number)
);
create unique index subscriptions_name on posthaste.subscriptions (queue_id, name) where dropped_at is null;

-- Positions of entries and ids of claims. CACHE 1: order within a key needs it.
create sequence posthaste.positions as bigint start 1 cache 1;

-- Which position posthaste.skip_ids last moved the sequence away from.
create sequence posthaste.skipped_from as bigint minvalue 0 start 0 cache 1;

-- The 16 slots of the ring. epoch is position >> 22 of the slot's present life.
-- left_before: whoever took a position of it has a transaction id below this one;
-- null while the sequence is in it.
create table posthaste.slots (
  slot        smallint primary key check (slot between 0 and 15),
  epoch       bigint   not null,
  live        boolean  not null,
  left_before xid8,
  marked_by   xid8,
  opened_at   timestamptz not null default clock_timestamp()
) with (fillfactor = 50);
insert into posthaste.slots select s, s, s = 0 from generate_series(0, 15) s;

-- The slots that may hold rows, as up to three runs of the ring: a to b, c to d
-- and e to f (1 to 0 is none). Scalars, for the planner prunes by those, and few,
-- for each partition's filter is set up anew in every statement. A run may cover
-- free slots, which are empty.
create type posthaste.live as (a bigint, b bigint, c bigint, d bigint, e bigint, f bigint);

-- An entry as people look at it: without its payload. message_id is the
-- position of the message's first entry, for that one too.
create type posthaste.head as (
  message_id bigint, pos bigint, xid xid8, queue_id int, lane smallint, created_at timestamptz, due_at timestamptz, for_subscription smallint,
  attempt smallint, failures smallint, losses smallint, content_type text, key text, kind text, reference text, headers jsonb, terms text[], story jsonb);

-- xid stands before pos on purpose: defaults are evaluated in this order, so a
-- writer has a transaction id before it takes a position. Reclaiming relies on
-- it: a position of a slot can only come from a transaction that was already
-- in progress when the sequence left the slot.
create table posthaste.entries (
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
  content_type     text,
  key              text,
  kind             text,
  reference        text,
  headers          jsonb,
  terms            text[],
  trace            text,
  story            jsonb,
  payload          bytea       not null
) partition by list (((pos >> 22) & 15));

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
  s0           pg_snapshot,
  s1           pg_snapshot,
  primary key (slot, id)
) partition by list (slot);

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
  outcome    text        not null,
  error      text,
  receipt    jsonb,
  primary key (slot, claim, place)
) partition by list (slot);

-- The ends of leases by time: one row for a received claim (place is null) and
-- one for each extension of one delivery.
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
  lz4 boolean := exists (select from pg_catalog.pg_settings
                          where name = 'default_toast_compression' and 'lz4' = any (enumvals));
  t text;
begin
  foreach t in array array['entries', 'claims', 'settlements', 'outcomes', 'leases'] loop
    for s in 0..15 loop
      execute format('create table posthaste.%I partition of posthaste.%I for values in (%s) with (autovacuum_enabled = off, toast.autovacuum_enabled = off)',
        t || '_' || s, t, s);
      -- Without a primary key a publication of all tables would refuse deletes.
      if t in ('entries', 'leases') then
        execute format('alter table posthaste.%I replica identity full', t || '_' || s);
      end if;
    end loop;
  end loop;
  -- Compressing payloads with pglz costs more than it saves; lz4 does not.
  if lz4 then
    alter table posthaste.entries alter column payload set compression lz4;
  else
    alter table posthaste.entries alter column payload set storage external;
  end if;
  for s in 0..15 loop
    if lz4 then
      execute format('alter table posthaste.%I alter column payload set compression lz4', 'entries_' || s);
    else
      execute format('alter table posthaste.%I alter column payload set storage external', 'entries_' || s);
    end if;
  end loop;
end $$;

create index entries_fresh on posthaste.entries (queue_id, lane, xid, pos) where due_at is null and ord is null;
create index entries_due_xid on posthaste.entries (queue_id, lane, xid, pos) where due_at is not null;
create index entries_due on posthaste.entries (queue_id, lane, due_at, pos) where due_at is not null;
create index entries_ordered on posthaste.entries (queue_id, lane, ord, pos) where ord is not null;
create index entries_message on posthaste.entries (message_id) where message_id is not null;
create index entries_reference on posthaste.entries (queue_id, reference, pos) where reference is not null;
create index entries_terms on posthaste.entries using gin (terms) where terms is not null;
create index entries_pos on posthaste.entries using brin (pos) with (pages_per_range = 32);

create index claims_reader on posthaste.claims (reader, seq);
create index claims_holder on posthaste.claims (holder, number) where holder is not null;
create index settlements_xid on posthaste.settlements (xid);
create index outcomes_xid on posthaste.outcomes (xid);
create index outcomes_message on posthaste.outcomes (message_id);
create index leases_xid on posthaste.leases (subscriber, xid);
create index leases_until on posthaste.leases (subscriber, until);
create index leases_claim on posthaste.leases (claim);

-- oldest_open is the mark below which none of the worker's claims is open but
-- the stragglers; cleared says of a worker that is gone that none at all is;
-- looked is where in its list of queues its next look begins.
create table posthaste.registrations (
  id           bigint primary key generated always as identity,
  name         text        not null,
  version      text        not null,
  lease        interval    not null,
  started_at   timestamptz not null default clock_timestamp(),
  heartbeat_at timestamptz not null default clock_timestamp(),
  lost_at      timestamptz,
  ended_at     timestamptz,
  cleared      boolean     not null default false,
  oldest_open  bigint      not null default 0,
  looked       int         not null default 0
) with (fillfactor = 50);

-- Claims that stayed open while very many of the same worker's after them were
-- closed: a row is an exception, and goes when its claim is closed.
create table posthaste.stragglers (
  worker bigint not null,
  claim  bigint not null,
  primary key (worker, claim)
);

-- How far ends of leases were examined, per subscriber.
create table posthaste.lease_cursors (
  subscriber bigint primary key,
  s          pg_snapshot not null,
  t          timestamptz not null
) with (fillfactor = 50);

-- Received claims whose lease was found ended while somebody was settling a part
-- of them: looked at again at next_try. A row is an exception, and goes when
-- nothing of its claim is held.
create table posthaste.held_claims (
  subscriber bigint not null,
  claim      bigint not null,
  next_try   timestamptz not null,
  primary key (subscriber, claim)
);

-- Due entries that no claim of the subscription will hand out any more. A row
-- lives as long as the slot of its entry, for a slice is read again by it.
create table posthaste.cancelled (
  pos        bigint   not null,
  subscriber bigint   not null,
  outcome    text     not null,
  at         timestamptz not null default clock_timestamp(),
  primary key (pos, subscriber)
);

-- What was carried out of a slot and is cancelled there: all entries of the lane
-- due after since, up to the key (due_at, pos). Goes with the slot's content.
create table posthaste.carried (
  slot     smallint    not null,
  queue_id int         not null,
  lane     smallint    not null,
  since    timestamptz not null,
  due_at   timestamptz not null,
  pos      bigint      not null,
  primary key (slot, queue_id, lane)
);

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
  content_type text,
  key          text,
  kind         text,
  reference    text,
  headers      jsonb,
  terms        text[],
  trace        text,
  error        text        not null,
  story        jsonb       not null,
  payload      bytea       not null,
  primary key (queue_id, message_id, subscription)
);
create index dead_letter_entries_message on posthaste.dead_letter_entries (message_id);
create index dead_letter_entries_reference on posthaste.dead_letter_entries (queue_id, reference, message_id) where reference is not null;
create index dead_letter_entries_terms on posthaste.dead_letter_entries using gin (terms) where terms is not null;

-- What operators did, and who.
create table posthaste.actions (
  id         bigint primary key generated always as identity,
  at         timestamptz not null default clock_timestamp(),
  by         text        not null,
  action     text        not null,
  message_id bigint,
  queue_id   int,
  details    jsonb
);
create index actions_message on posthaste.actions (message_id);

-- Sums of the log, added up by maintenance from what is new since s.
create table posthaste.counters (
  queue_id     int      not null,
  subscription smallint not null,
  sent         bigint   not null default 0,
  again        bigint   not null default 0,
  handed       bigint   not null default 0,
  done         bigint   not null default 0,
  settled      bigint   not null default 0,
  retried      bigint   not null default 0,
  lost         bigint   not null default 0,
  dropped      bigint   not null default 0,
  before_sent  bigint   not null default 0,
  before_done  bigint   not null default 0,
  before_at    timestamptz,
  counted_at   timestamptz not null default clock_timestamp(),
  primary key (queue_id, subscription)
) with (fillfactor = 50);

create table posthaste.counted (
  only_row   boolean primary key default true check (only_row),
  s          pg_snapshot not null,
  last_value bigint      not null default 0,
  at         timestamptz not null default clock_timestamp()
) with (fillfactor = 50);
insert into posthaste.counted (s) values (pg_current_snapshot());

insert into posthaste.identity (system_identifier, database_oid)
select (select system_identifier from pg_control_system()), d.oid
  from pg_catalog.pg_database d where d.datname = current_database();
