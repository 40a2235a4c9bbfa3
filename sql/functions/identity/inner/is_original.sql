-- posthaste.is_original: whether this database is the one that the ledger was made
-- in, or that a person said it is: by the server's identifier and the database's
-- oid, and by the id of the transaction that wrote the row, which no dump keeps,
-- also not one that is restored into the database it was made of.
-- Reads: identity.
create or replace function posthaste.is_original()
returns boolean language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
  return exists (select from posthaste.identity i, pg_database d
                  where d.datname = current_database() and d.oid = i.database_oid and i.xmin = i.written_by
                    and i.system_identifier = (select system_identifier from pg_control_system()));
end $$;
