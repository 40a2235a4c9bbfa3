-- compatible
-- The words that whoever handled a message found to look it up by, where it was
-- sent without terms and no later entry or dead letter has them.
alter table posthaste.outcomes add column terms text[];
create index outcomes_terms on posthaste.outcomes using gin (terms) with (gin_pending_list_limit = 256) where terms is not null;
