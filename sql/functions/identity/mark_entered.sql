-- posthaste.mark_entered: marks the slots that the sequence entered by itself since the last
-- mark, except those that posthaste.skip_ids moved it across.
-- Arguments: the sequence's epoch.
-- The progress of carrying such a slot does not cover messages sent there since, so it is
-- deleted, and carrying starts over.
-- Called under the maintenance key. Updates: slots. Deletes: carried.
create or replace function posthaste.mark_entered(p_epoch bigint)
returns void language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_newest bigint;
  v_from bigint;
  v_to bigint;
  v_epochs bigint[];
begin
  select coalesce(max(s.epoch), p_epoch - 16) into v_newest from posthaste.slots s where s.live and s.epoch <= p_epoch and s.marked_by is null;
  if v_newest >= p_epoch then
    return;
  end if;
  select p.last_value >> 22, posthaste.slot_start(p.last_value, ((p.last_value >> 22) & 15)::int) >> 22 into v_from, v_to from posthaste.skipped_from p where p.is_called;
  if v_from is null or v_from < v_newest or v_to > p_epoch then
    v_from := p_epoch;
    v_to := p_epoch;
  end if;
  -- The newest epoch counts for a slot that was entered several times.
  v_epochs := array(select max(e) from (select generate_series(greatest(v_newest + 1, v_from - 15), v_from) union all select generate_series(greatest(v_to, p_epoch - 15), p_epoch)) x (e) group by e & 15);
  update posthaste.slots s set live = true, epoch = x.epoch, left_before = null, marked_by = null, opened_at = clock_timestamp()
    from unnest(v_epochs) x (epoch)
   where s.slot = x.epoch & 15;
  delete from posthaste.carried k using unnest(v_epochs) x (epoch) where k.slot = x.epoch & 15;
end $$;
