-- compatible
-- Several subscriptions: where each starts, what it takes, and how long it may
-- hold space; withdrawn entries, also fresh ones; who did what to a queue.

-- starts: 'now' or 'oldest' (what was kept when it was made). scheduled: also what
-- was sent before and falls due after it was made. sifts: its readers leave out
-- entries by themselves, by the filter or since they were there before.
alter table posthaste.subscriptions
  add column starts    text     not null default 'now' check (starts in ('now', 'oldest')),
  add column scheduled boolean  not null default false,
  add column sifts     boolean  not null default false,
  add column max_lag   interval check (max_lag > '0');

-- A dropped queue's subscriptions are dropped with it, so that one look tells.
update posthaste.subscriptions s set dropped_at = q.dropped_at
  from posthaste.queue_settings q where q.id = s.queue_id and q.dropped_at is not null and s.dropped_at is null;

-- How many entries the reader's subscription left out so far; null for those
-- that take all.
alter table posthaste.claims add column sifted bigint;

-- xid: of the entry, where it is a fresh one, so that a claim learns from an
-- index whether such a one lies ahead.
-- noted: the transaction that withdrew it, for counting, or 3 if it counts nothing.
alter table posthaste.cancelled add column xid xid8, add column noted xid8 not null default pg_current_xact_id();
create index cancelled_fresh on posthaste.cancelled (subscriber, xid) where xid is not null;
create index cancelled_noted on posthaste.cancelled (noted);

-- The last purge: what it saw is not kept for anybody.
alter table posthaste.queue_settings add column purged pg_snapshot;

alter table posthaste.counters add column sifted bigint not null default 0;
