-- compatible
-- Whether any key of a lane waits for a run to end: each claim and settle asks, and
-- must not look through all keys of which something is parked.
create index keys_waits on posthaste.keys (subscriber, lane, hash) where waits;
