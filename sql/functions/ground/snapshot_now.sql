-- posthaste.snapshot_now: the current snapshot in a form that a cursor may store.
-- A transaction's own id counts as finished in its own snapshot once it lies below xmax.
-- Stored like that, entries that the transaction appends later would never be delivered.
-- So the own id is listed as in progress.
-- Errors: PH400 unless the isolation level is READ COMMITTED, because otherwise the snapshot
-- would be older than the lock that protects the reader.
create or replace function posthaste.snapshot_now()
returns pg_snapshot language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  s pg_snapshot;
  own xid8;
begin
  if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
    raise exception using errcode = 'PH400',
      message = format('claiming needs READ COMMITTED, and this transaction is %s', upper(current_setting('transaction_isolation'))),
      hint = 'receive in a short READ COMMITTED transaction of its own; sending works at every level';
  end if;
  s := pg_current_snapshot();
  own := pg_current_xact_id_if_assigned();
  if own is null or own >= pg_snapshot_xmax(s) then
    return s;
  end if;
  return format('%s:%s:%s', least(own, pg_snapshot_xmin(s)), pg_snapshot_xmax(s),
    (select string_agg(x::text, ',' order by x) from (select own as x union select pg_snapshot_xip(s)) i))::pg_snapshot;
end $$;
