-- compatible
-- How often a claim could not be rescued for another reason than that it was held, and
-- what the last one was.
alter table posthaste.held_claims add column tries int not null default 0, add column error text;

-- A slot that the sequence was moved into is not announced any more.
update posthaste.slots set marked_by = null where epoch <= (select p.last_value >> 22 from posthaste.positions p);
