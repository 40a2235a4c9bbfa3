-- posthaste.rotate: keeps the marks of the ring and moves the sequence into the next free slot
-- when the current one is full enough. It uses no DDL, and senders are not affected.
-- Returns: 'marked' (a slot is announced, call again in a later transaction), 'moved', or null.
-- A slot is marked live in a transaction that commits before the sequence moves there. setval
-- can turn a sequence back, so it jumps at least a whole revolution (2^26) ahead: concurrent
-- nextvals cannot get that far.
-- Called under the maintenance lock, first in its transaction. Updates: slots, positions.
-- Deletes: carried.
create or replace function posthaste.rotate()
returns text language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_settings posthaste.settings;
  v_last bigint;
  v_epoch bigint;
  v_start bigint;
  m posthaste.slots;
begin
  -- A skip lies farther ahead than the target of this move, which would undo it.
  perform posthaste.skip_ids();
  select * into v_settings from posthaste.settings;
  select last_value into v_last from posthaste.positions;
  v_epoch := v_last >> 22;
  -- A writer has a transaction id before it takes a position. So every transaction with a
  -- position of a slot that the sequence has left has an id below all that are assigned from
  -- now on. If this transaction has an id already, a later round notes its own. A snapshot is
  -- not sufficient: it does not list ids above all those finished.
  if pg_current_xact_id_if_assigned() is null
     and exists (select from posthaste.slots where live and epoch < v_epoch and left_before is null) then
    update posthaste.slots set left_before = pg_current_xact_id() where live and epoch < v_epoch and left_before is null;
  end if;
  perform posthaste.mark_entered(v_epoch);

  select * into m from posthaste.slots where live and epoch > v_epoch order by epoch desc limit 1;
  if m.slot is not null then
    if m.marked_by = pg_current_xact_id_if_assigned() then
      return 'marked';
    end if;
    -- The sequence may enter the next slot between the read and the move, and then nothing
    -- shows it any more. So near the end of a slot the next one must be marked, too, and it is
    -- left only from the next round on.
    if (v_last & 4194303) >= 3145728 and m.slot <> (v_epoch + 1) & 15 then
      update posthaste.slots s set left_before = null where s.slot = (v_epoch + 1) & 15 and s.live;
      if found then
        delete from posthaste.carried k where k.slot = (v_epoch + 1) & 15; -- as in posthaste.mark_entered
      else
        update posthaste.slots s set live = true, left_before = null, epoch = v_epoch + 1, marked_by = pg_current_xact_id() where s.slot = (v_epoch + 1) & 15;
        return 'marked';
      end if;
    end if;
    v_start := posthaste.slot_start(v_last, m.slot);
    perform setval('posthaste.positions', v_start, false);
    update posthaste.slots set epoch = v_start >> 22, marked_by = null, opened_at = clock_timestamp() where slot = m.slot;
    return 'moved';
  end if;
  if (v_last & 4194303) + 1 >= v_settings.slot_rows
     or pg_table_size(format('posthaste.entries_plain_%s', v_epoch & 15)::regclass) + pg_table_size(format('posthaste.entries_other_%s', v_epoch & 15)::regclass)
        + pg_table_size(format('posthaste.words_%s', v_epoch & 15)::regclass) + pg_table_size(format('posthaste.notes_%s', v_epoch & 15)::regclass) >= v_settings.slot_bytes then
    select * into m from posthaste.slots where not live order by (slot - v_epoch - 1) & 15 limit 1;
    if m.slot is not null then
      update posthaste.slots set live = true, left_before = null, epoch = posthaste.slot_start(v_last, m.slot) >> 22,
             marked_by = pg_current_xact_id() where slot = m.slot;
      return 'marked';
    end if;
  end if;
  return null;
end $$;
