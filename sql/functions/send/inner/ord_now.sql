-- posthaste.ord_now: the place of the messages that are sent now in the order of a keyed queue.
-- If a send begins after another's commit, its ord is at least as high, and its positions are
-- higher. The transaction's own id does not guarantee that because it may be old, and the
-- position does not because windows are by ids.
-- Every snapshot that sees the messages has an xmax of at least their ord, which ends the
-- readers' scans.
-- Under READ COMMITTED it takes a new snapshot's xmax, which is why this is volatile and not
-- a column default. At other levels the snapshot is as old as the transaction, and the new id
-- of a subtransaction does the same. That is rolled back: deleting its row would scan the
-- table, which SERIALIZABLE treats as a conflict with every other sender, and which fails if
-- a publication contains all tables.
-- Gives the transaction its id, which must come before its positions.
-- Inserts: order_marks, and rolls back.
create or replace function posthaste.ord_now()
returns xid8 language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  own xid8 := pg_current_xact_id();
  v_low bigint;
  v_id bigint;
begin
  if current_setting('transaction_isolation') in ('read committed', 'read uncommitted') then
    return greatest(own, pg_snapshot_xmax(pg_current_snapshot()));
  end if;
  begin
    insert into posthaste.order_marks default values returning xmin::text::bigint into v_low;
    raise division_by_zero;
  exception when division_by_zero then
    null; -- only the subtransaction's id is needed, which is above all earlier ones
  end;
  -- xmin has the lower 32 bits, and is above the transaction's own id.
  v_id := (own::text::bigint >> 32 << 32) | v_low;
  if v_id < own::text::bigint then
    v_id := v_id + (1::bigint << 32);
  end if;
  return v_id::text::xid8;
end $$;
