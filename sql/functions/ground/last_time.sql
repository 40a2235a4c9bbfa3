-- posthaste.last_time: the upper bound, exclusive, of all times that callers pass: the last
-- day of the year 9999 in UTC, so that every program can show them in any time zone.
create or replace function posthaste.last_time()
returns timestamptz language sql immutable set search_path = pg_catalog, pg_temp as $$ select timestamptz '9999-12-31 00:00:00+00' $$;
