-- posthaste.forget_cancelled: removes rows of cancelled whose entries are gone with their slots,
-- at most 10,000 a call.
-- By revolutions with rows, which are few. Not by the current epoch of a slot: in a ledger that
-- was not maintained for a whole revolution it still has entries of earlier ones.
-- Reads: slots, counted. Deletes from: cancelled.
create or replace function posthaste.forget_cancelled()
returns void language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
declare
  v_epoch bigint := -1;
  v_left int := 10000;
  v_gone int;
begin
  while v_left > 0 loop
    select x.pos >> 22 into v_epoch from posthaste.cancelled x where x.pos >= (v_epoch + 1) << 22 order by x.pos limit 1;
    exit when v_epoch is null;
    continue when not exists (select from posthaste.slots s where s.slot = (v_epoch & 15) and s.cleared_to >= ((v_epoch + 1) << 22) - 1);
    -- By ctid: a join may compare each with all rows.
    delete from posthaste.cancelled k
     where k.ctid = any (array(
       select x.ctid from posthaste.cancelled x
        where x.pos >= v_epoch << 22 and x.pos < (v_epoch + 1) << 22
          -- A parked message outlives its slot, and must be counted first.
          and pg_visible_in_snapshot(x.noted, (select c.s from posthaste.counted c)) order by x.pos, x.subscriber limit v_left
        -- A cancelling transaction locks rows in another order, and may keep them for long.
        for update skip locked));
    get diagnostics v_gone = row_count;
    v_left := v_left - v_gone;
  end loop;
end $$;
