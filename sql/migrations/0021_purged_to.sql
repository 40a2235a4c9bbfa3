-- compatible
-- The last position that was given out when a queue was purged: a message with a higher
-- id was sent later, so that nobody has to look up whether it was taken back.
alter table posthaste.queue_settings add column purged_to bigint;
update posthaste.queue_settings set purged_to = (select p.last_value from posthaste.positions p) where purged is not null;
