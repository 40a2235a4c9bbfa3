-- posthaste.check_identity: refuses in a database that is a copy.
-- A database restored from a dump, cloned or moved by logical replication has
-- other transaction ids, and no trace in the ids shows it; claims by stored
-- snapshots would skip messages in silence. A backend never changes its
-- database, so the answer is remembered for the session.
-- Errors: PH503. Reads: identity.
create or replace function posthaste.check_identity()
returns void language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
  if not exists (select from posthaste.identity i, pg_database d
                  where d.datname = current_database() and d.oid = i.database_oid
                    and i.system_identifier = (select system_identifier from pg_control_system())) then
    raise exception using errcode = 'PH503',
      message = 'this database is a copy of the one that its messages were sent in: nothing is handed out until a person says what it is',
      hint = 'sending works; to hand out here, the ledger must be rebased, which this version does not support yet';
  end if;
  perform set_config('posthaste.identity_checked', 'yes', false);
end $$;
