-- compatible
-- How far a fair queue's lane was read ahead of its cursor, whose window (base0, base1)
-- it is: up to (last_xid, last_pos) of the window (s0, s1), how much was parked, and
-- whether nothing was left to read then.
-- Written under the lane's lock alone.
create table posthaste.ahead (
  subscriber bigint      not null,
  lane       smallint    not null,
  base0      pg_snapshot not null,
  base1      pg_snapshot not null,
  s0         pg_snapshot not null,
  s1         pg_snapshot not null,
  last_xid   xid8        not null,
  last_pos   bigint      not null,
  parked     bigint      not null,
  complete   boolean     not null,
  primary key (subscriber, lane)
) with (fillfactor = 50);

-- And the keys found there: how many messages of each were parked, and whether
-- others of it were left in the log.
create table posthaste.ahead_keys (
  subscriber  bigint   not null,
  lane        smallint not null,
  key         text     not null,
  parked      bigint   not null,
  left_in_log boolean  not null,
  primary key (subscriber, lane, key)
) with (fillfactor = 70);
