-- compatible
-- Which transaction wrote the row of identity, as it says itself. A row that was
-- restored from a dump or replicated bears another one's id; pg_upgrade and physical
-- copies keep both. Twice, for only the row that was written tells by whom: within a
-- savepoint it is not the id of the transaction.
alter table posthaste.identity add column written_by xid;
update posthaste.identity i set written_by = '0'
  from pg_database d
 where d.datname = current_database() and d.oid = i.database_oid
   and i.system_identifier = (select system_identifier from pg_control_system());
update posthaste.identity set written_by = xmin where written_by is not null;
