-- posthaste.is_original: whether the ledger was created in this database, or an operator
-- declared it the original. It compares the server's identifier, the database's oid, and the
-- id of the transaction that wrote the row, which no dump keeps, not even one that is
-- restored into the same database.
-- Reads: identity.
create or replace function posthaste.is_original()
returns boolean language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
  return exists (select from posthaste.identity i, pg_database d
                  where d.datname = current_database() and d.oid = i.database_oid and i.xmin = i.written_by
                    and i.system_identifier = (select system_identifier from pg_control_system()));
end $$;
