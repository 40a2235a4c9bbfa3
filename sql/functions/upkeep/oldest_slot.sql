-- posthaste.oldest_slot: the slot with rows that the sequence left longest ago, and what keeps
-- it: the subscription, the claim or the transaction.
-- Returns: slot, since when it is kept, blocker (as posthaste.slot_blocker), and the queue and
-- the subscription if one keeps it; no row if no slot was left, or the oldest one is free. Reads
-- the tables of slot_blocker.
create or replace function posthaste.oldest_slot()
returns table (slot int, since timestamptz, blocker text, queue text, subscription text)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_names text[];
begin
  for slot, since in
    select s.slot::int, (select min(n.opened_at) from posthaste.slots n where n.live and n.epoch > s.epoch)
      from posthaste.slots s where s.live and s.left_before is not null order by s.epoch
  loop
    blocker := posthaste.slot_blocker(slot);
    continue when blocker is null; -- it is reclaimed when space is needed
    v_names := regexp_match(blocker, '^subscription ''([^'']+)'' of queue ''([^'']+)''');
    subscription := v_names[1];
    queue := v_names[2];
    return next;
    return;
  end loop;
end $$;
