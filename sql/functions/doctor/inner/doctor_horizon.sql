-- posthaste.doctor_horizon: transactions and replication slots that keep old rows from being
-- vacuumed and slots from being reclaimed: long open transactions, prepared ones that were not
-- ended, replication slots without a reader, and those whose reader lags: by more of the
-- write-ahead log than is kept between checkpoints anyway (max_wal_size), or by a million
-- transactions. Writing and prepared transactions of other databases keep slots, too, because
-- every snapshot lists them; those that only read keep nothing here. Transactions of other users
-- are visible to members of pg_read_all_stats.
-- Reads: pg_stat_activity, pg_prepared_xacts, pg_replication_slots.
create or replace function posthaste.doctor_horizon()
returns table ("check" text, level text, message text, hint text, queue text, subscription text) language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
  return query
    select 'horizon', 'warning', format('session %s (user %s, application %s%s) has had a transaction open for %s, and is %s', a.pid, coalesce(a.usename::text, 'none'),
                             coalesce(nullif(a.application_name, ''), 'unknown'), case when a.datname <> current_database() then ', database ' || a.datname else '' end,
                             date_trunc('second', clock_timestamp() - a.xact_start), coalesce(a.state, 'active')),
           format('wait for its end, or end it: select pg_terminate_backend(%s)', a.pid), null::text, null::text
      from pg_stat_activity a
     where (a.datname = current_database() and a.backend_type = 'client backend' or a.datname <> current_database() and a.backend_xid is not null)
       and a.pid <> pg_backend_pid() and a.xact_start < clock_timestamp() - posthaste.patience()
     order by a.xact_start limit 20;
  return query
    select 'horizon', 'fault', format('transaction %L was prepared %s ago, by %s%s, and never ended', p.gid, date_trunc('second', clock_timestamp() - p.prepared), p.owner,
                           case when p.database <> current_database() then ' in database ' || p.database else '' end),
           format('ask its coordinator, then commit prepared %L or rollback prepared %L%s', p.gid, p.gid,
                  case when p.database <> current_database() then ', in that database' else '' end), null::text, null::text
      from pg_prepared_xacts p
     where p.prepared < clock_timestamp() - posthaste.patience()
     order by p.prepared limit 20;
  return query
    select 'horizon', 'warning', format('replication slot %L has no reader, and keeps %s of the write-ahead log%s', r.slot_name,
                             pg_size_pretty(case when pg_is_in_recovery() then 0 else pg_wal_lsn_diff(pg_current_wal_lsn(), r.restart_lsn) end),
                             case when coalesce(r.xmin, r.catalog_xmin) is not null then ' and old rows' else '' end),
           format('start its reader, or drop it: select pg_drop_replication_slot(%L)', r.slot_name), null::text, null::text
      from pg_replication_slots r
     where not r.active and r.restart_lsn is not null
     order by r.slot_name limit 20;
  return query
    select 'horizon', 'warning', format('replication slot %L is read by process %s, which lags: it keeps %s of the write-ahead log%s', r.slot_name, r.active_pid, pg_size_pretty(r.log),
                             case when r.rows > 1000000 then format(' and the old rows of %s transactions', r.rows) else '' end),
           'look in pg_stat_replication for the cause (on a standby with hot_standby_feedback a long query), or stop the reader and drop the slot; max_slot_wal_keep_size bounds the log', null::text, null::text
      from (select x.slot_name, x.active_pid, greatest(age(x.xmin), age(x.catalog_xmin), 0) as rows,
                   case when pg_is_in_recovery() then 0 else pg_wal_lsn_diff(pg_current_wal_lsn(), x.restart_lsn) end as log
              from pg_replication_slots x where x.active) r
     where r.log > pg_size_bytes(current_setting('max_wal_size')) or r.rows > 1000000
     order by r.slot_name limit 20;
end $$;
