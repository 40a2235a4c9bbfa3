-- compatible
-- Since when a queue's concurrency is used up: whoever settles then wakes who waits
-- for a free place.
alter table posthaste.limit_states add full_since timestamptz;

-- To list what is paused.
create index keys_paused on posthaste.keys (subscriber, key) where paused_at is not null;

-- Buckets of keys that maintenance may remove once they are full again.
create index keys_tokens on posthaste.keys (subscriber, tokens_at)
  where tokens is not null and not blocked and paused_at is null and stopped_by is null;
