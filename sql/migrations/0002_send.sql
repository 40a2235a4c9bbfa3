-- compatible
-- What a send can say: priorities and dedupe keys; and what a request over HTTP
-- may be repeated by.

-- width is how many lanes the queue's user asked for. lanes, which everything
-- that reads goes through, is the same until a priority above 0 is used, and
-- 4 × width from then on: lane = priority × width + any number below width.
alter table posthaste.queue_settings add column width smallint not null default 1 check (width between 1 and 64);
update posthaste.queue_settings set width = lanes;
alter table posthaste.queue_settings drop constraint queue_settings_lanes_check;
alter table posthaste.queue_settings add constraint queue_settings_lanes_check check (lanes in (width, 4 * width));

-- Which message was the last of its key. A row is forgotten when its window is
-- over.
create table posthaste.dedupe_keys (
  queue_id   int         not null,
  key        text        not null,
  message_id bigint      not null,
  until      timestamptz not null,
  primary key (queue_id, key)
);
create index dedupe_keys_until on posthaste.dedupe_keys (until);

-- Requests that may come again, and what they sent. A row is forgotten when its
-- time is over.
create table posthaste.idempotency_keys (
  scope   text        not null,
  key     text        not null,
  request bytea       not null,
  ids     bigint[]    not null,
  until   timestamptz not null,
  primary key (scope, key)
);
create index idempotency_keys_until on posthaste.idempotency_keys (until);
