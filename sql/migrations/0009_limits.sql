-- compatible
-- Since when a queue's concurrency is used up: whoever settles then wakes who waits
-- for a free place.
alter table posthaste.limit_states add full_since timestamptz;

-- To list what is paused.
create index keys_paused on posthaste.keys (subscriber, key) where paused_at is not null;

-- Buckets of keys that maintenance may remove once they are full again. Each claim takes
-- tokens; by five minutes, since an index of a column that changes is written anew with
-- every other index of the row (PostgreSQL's manual, "Heap-Only Tuples").
alter table posthaste.keys add column tokens_since timestamp
  generated always as (date_bin('5 minutes', tokens_at at time zone 'UTC', timestamp '2000-01-01')) stored;
create index keys_tokens on posthaste.keys (subscriber, tokens_since)
  where tokens is not null and not blocked and paused_at is null and stopped_by is null;
