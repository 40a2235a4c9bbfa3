-- posthaste.mark_entered: marks the slots that the sequence ran into by itself since the
-- marks were kept.
-- Arguments: the sequence's epoch.
-- What carrying has noted of such a slot is not true of what was sent there since: it
-- goes over the slot anew.
-- Called under the maintenance key. Updates: slots. Deletes: carried.
create or replace function posthaste.mark_entered(p_epoch bigint)
returns void language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_newest bigint;
begin
  select coalesce(max(s.epoch), p_epoch - 16) into v_newest from posthaste.slots s where s.live and s.epoch <= p_epoch and s.marked_by is null;
  if v_newest >= p_epoch then
    return;
  end if;
  update posthaste.slots s set live = true, epoch = x.epoch, left_before = null, marked_by = null, opened_at = clock_timestamp()
    from (select e as epoch, (e & 15)::smallint as slot from generate_series(greatest(v_newest + 1, p_epoch - 15), p_epoch) e) x
   where s.slot = x.slot;
  delete from posthaste.carried k using generate_series(greatest(v_newest + 1, p_epoch - 15), p_epoch) e where k.slot = e & 15;
end $$;
