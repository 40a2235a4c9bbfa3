-- posthaste.jump: moves the sequence a revolution ahead within its slot. From there on
-- nothing tells any more which slots it ran into before: they are marked first.
-- Called under the maintenance key. Updates: slots, positions. Deletes: carried.
create or replace function posthaste.jump()
returns void language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_last bigint;
  v_start bigint;
begin
  select last_value into v_last from posthaste.positions;
  perform posthaste.mark_entered(v_last >> 22);
  v_start := posthaste.slot_start(v_last, ((v_last >> 22) & 15)::int);
  perform setval('posthaste.positions', v_start, false);
  update posthaste.slots set epoch = v_start >> 22, live = true, left_before = null, marked_by = null
   where slot = (v_last >> 22) & 15;
end $$;
