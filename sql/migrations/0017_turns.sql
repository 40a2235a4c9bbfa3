-- compatible
-- The line of keys that may have something to hand out, in place of events that every
-- claim of a lane with many of them had to write anew.
-- turn: a key's place in line, null while it is in none. early: how many more of its
-- messages may be parked before it counts as one that has much; those that have little
-- have a line of their own. Only what is blocked is in line.
alter table posthaste.keys add turn bigint, add early smallint not null default 0;
create index keys_turn on posthaste.keys (subscriber, lane, turn) where turn is not null and early = 0;
create index keys_turn_early on posthaste.keys (subscriber, lane, turn) where turn is not null and early > 0;
-- Whoever looks for a key must not be led through all keys of a lane instead: this index
-- serves only who says that lane is not below 0.
drop index posthaste.keys_lane;
create index keys_lane on posthaste.keys (subscriber, lane) where lane >= 0;

-- In the cursor of a keyed lane's events: from where on those who are early and the
-- others are in line, so that what died before is not walked over, and the last number
-- given.
alter table posthaste.claims add turns bigint[];

-- How far a lane was read ahead: the newest row counts, and maintenance removes the
-- others, so that an old snapshot holds up no claim. reading: tells its keys from those
-- of others; null: it is over.
drop table posthaste.ahead, posthaste.ahead_keys;
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
create table posthaste.ahead_keys (
  subscriber  bigint   not null,
  lane        smallint not null,
  reading     bigint   not null,
  key         text     not null,
  parked      bigint   not null,
  left_in_log boolean  not null,
  primary key (subscriber, lane, reading, key)
) with (fillfactor = 70);
