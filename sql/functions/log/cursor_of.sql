-- posthaste.cursor_of: a reader's cursor: its newest claim, with the snapshots of its window
-- filled in. A reader that never claimed starts where its subscription began. A fresh cursor
-- with part 3 sifts (posthaste.sifted_slice), and so does a due one whose sifted is not null.
-- Arguments: reader, the live slots. If the result must stay valid, call it under the
-- reader's lock, in a later statement than the one that took the lock.
-- Reads: claims, subscriptions.
create or replace function posthaste.cursor_of(p_reader bigint, l posthaste.live)
returns posthaste.claims language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off as $$
declare
  v_cursor posthaste.claims;
begin
  select * into v_cursor from posthaste.claims
   where reader = p_reader
     and posthaste.in_slots(slot, l.a, l.b, l.c, l.d, l.e, l.f)
   order by reader, seq desc limit 1;
  if v_cursor.id is null then
    v_cursor.reader := p_reader;
    v_cursor.seq := 0;
    v_cursor.total := 0;
    v_cursor.ended := true;
    select since, case when filter is not null and p_reader & 1 = 0 then 3 else 2 end, case when sifts then 0 end,
           case when scheduled then created_at else '-infinity' end
      into v_cursor.s1, v_cursor.part, v_cursor.sifted, v_cursor.t1 from posthaste.subscriptions
     where queue_id = p_reader >> 20 and number = (p_reader >> 10) & 1023;
  elsif v_cursor.window_claim is not null then
    select s0, s1 into v_cursor.s0, v_cursor.s1 from posthaste.claims where slot = v_cursor.slot and id = v_cursor.window_claim;
  end if;
  return v_cursor;
end $$;
