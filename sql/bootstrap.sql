-- What must be there before the first migration: the schema, and the record of
-- what was applied to it. Harmless when repeated.
create schema if not exists posthaste;

-- One row for each migration that was applied. breaking says that programs
-- which do not know it must not run on this schema.
create table if not exists posthaste.migrations (
  version    int         primary key check (version > 0),
  name       text        not null,
  breaking   boolean     not null,
  applied_at timestamptz not null default clock_timestamp()
);

-- What the functions and views were made from, a hash over all their files; and
-- everything that migrate made in this schema, as pg_identify_object names it.
-- What is not among that is somebody else's, and is never dropped.
create table if not exists posthaste.applied (
  only_row   boolean     primary key default true check (only_row),
  hash       text        not null default '',
  objects    text[]      not null default '{}',
  applied_at timestamptz not null default clock_timestamp()
);
