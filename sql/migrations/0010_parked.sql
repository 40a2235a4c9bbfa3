-- compatible
-- Which entry a parked message stood in last, and what finds it when that is gone.
alter table posthaste.parked add pos bigint;
create index parked_reference on posthaste.parked (reference) where reference is not null;
create index parked_terms on posthaste.parked using gin (terms) where terms is not null;
