-- posthaste.adopt: records that the ledger belongs to this database from now on.
-- It writes twice, because only the written row shows its transaction id: within a savepoint
-- that is not the id of the transaction.
-- Inserts, updates: identity.
create or replace function posthaste.adopt()
returns void language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
  insert into posthaste.identity as i (system_identifier, database_oid)
  select (select system_identifier from pg_control_system()), d.oid from pg_database d where d.datname = current_database()
  on conflict (only_row) do update set system_identifier = excluded.system_identifier, database_oid = excluded.database_oid;
  update posthaste.identity set written_by = xmin;
end $$;
