-- posthaste.rebase_ring: empties the ring of everything below a position.
-- Arguments: the first of the positions that stay.
-- Called by posthaste.rebase under its locks, last. Truncates, deletes: the ring.
-- Updates: slots. Deletes: cancelled, erased.
create or replace function posthaste.rebase_ring(p_start bigint)
returns void language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_last bigint;
  v_epoch bigint;
  v_first bigint := p_start >> 22;
begin
  select last_value >> 22 into v_last from posthaste.positions;
  for s in 0..15 loop
    -- The newest revolution in which the new positions entered the slot.
    v_epoch := v_last - ((v_last - s) & 15);
    if v_epoch >= v_first then
      execute format('delete from posthaste.entries_plain_%s where pos < $1', s) using p_start;
      execute format('delete from posthaste.entries_other_%s where pos < $1', s) using p_start;
      execute format('delete from posthaste.words_%s where pos < $1', s) using p_start;
      execute format('delete from posthaste.claims_%s where id < $1', s) using p_start;
      execute format('delete from posthaste.settlements_%s where claim < $1', s) using p_start;
      execute format('delete from posthaste.notes_%s where claim < $1', s) using p_start;
      execute format('delete from posthaste.outcomes_%s where claim < $1', s) using p_start;
      execute format('delete from posthaste.leases_%s where claim < $1', s) using p_start;
    else
      execute format('truncate posthaste.entries_plain_%1$s, posthaste.entries_other_%1$s, posthaste.words_%1$s, posthaste.claims_%1$s, posthaste.settlements_%1$s, posthaste.notes_%1$s, posthaste.outcomes_%1$s, posthaste.leases_%1$s', s);
    end if;
    update posthaste.slots set live = v_epoch >= v_first, epoch = case when v_epoch >= v_first then v_epoch else epoch end,
           left_before = null, marked_by = null, cleared_to = p_start - 1 where slot = s;
  end loop;
  delete from posthaste.cancelled where pos < p_start;
  delete from posthaste.erased where pos < p_start;
end $$;
