-- Created before the first migration: the schema, and the record of migrations and functions.
-- Idempotent.
create schema if not exists posthaste;

-- One row for each applied migration. breaking says that programs that do not know the migration
-- must not run on this schema.
create table if not exists posthaste.migrations (
  version    int         primary key check (version > 0),
  name       text        not null,
  breaking   boolean     not null,
  applied_at timestamptz not null default clock_timestamp()
);

-- The hash over all files of the functions and views that were applied, and all objects that
-- migrate created in this schema, as pg_identify_object names them. Other objects are the user's,
-- and are never dropped.
create table if not exists posthaste.applied (
  only_row   boolean     primary key default true check (only_row),
  hash       text        not null default '',
  objects    text[]      not null default '{}',
  applied_at timestamptz not null default clock_timestamp()
);
