-- posthaste.ord_now: the place in the order of a keyed queue of what is sent now.
-- If one send begins after another's commit, its ord is at least as high, and its
-- positions are higher. The own transaction's id alone does not give that, for
-- it may be old, nor does the position, for windows are by ids.
-- Every snapshot that sees what was sent has an xmax of at least its ord, which
-- ends the readers' scans.
-- Under READ COMMITTED a new snapshot's xmax is taken, which is why this is
-- volatile and no column default. Elsewhere the snapshot is as old as the
-- transaction, and the new id of a subtransaction does the same. That is rolled back:
-- deleting its row would look through the table, which SERIALIZABLE takes for a conflict
-- with every other sender, and a publication of all tables refuses.
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
    null; -- only for the subtransaction's id, which is above all those of before
  end;
  -- xmin has the lower 32 bits, and lies above the own id.
  v_id := (own::text::bigint >> 32 << 32) | v_low;
  if v_id < own::text::bigint then
    v_id := v_id + (1::bigint << 32);
  end if;
  return v_id::text::xid8;
end $$;
