-- compatible
-- From where workers came: the environment that they name, by which a physical copy
-- that is reached from elsewhere is told from the original after it was started.
alter table posthaste.registrations add column environment text collate "C";
alter table posthaste.since_crash add column started timestamptz;
update posthaste.since_crash set started = pg_postmaster_start_time();
