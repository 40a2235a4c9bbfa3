-- compatible
-- How often a claim could not be rescued for another reason than that it was held, and
-- what the last one was.
alter table posthaste.held_claims add column tries int not null default 0, add column error text;
