-- compatible
-- A parked message is looked up by its id and subscriber. By the id alone, the
-- planner may take the primary key instead, and walk all that a subscriber has parked.
drop index posthaste.parked_message;
create index parked_message on posthaste.parked (message_id, subscriber);
