-- posthaste.cursor_of: where a reader stands: its newest claim, with the
-- snapshots of its window filled in. A reader that never claimed stands where
-- its subscription began. A fresh one with part 3 sifts (posthaste.sifted_slice),
-- and a due one whose sifted is not null.
-- Arguments: reader, the live slots. Called under the reader's lock, in a later
-- statement, when the answer must hold.
-- Reads: claims, subscriptions.
create or replace function posthaste.cursor_of(p_reader bigint, l posthaste.live)
returns posthaste.claims language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off as $$
declare
  c posthaste.claims;
begin
  select * into c from posthaste.claims
   where reader = p_reader
     and posthaste.in_slots(slot, l.a, l.b, l.c, l.d, l.e, l.f)
   order by reader, seq desc limit 1;
  if c.id is null then
    c.reader := p_reader;
    c.seq := 0;
    c.total := 0;
    c.ended := true;
    select since, case when filter is not null and p_reader & 1 = 0 then 3 else 2 end, case when sifts then 0 end,
           case when scheduled then created_at else '-infinity' end
      into c.s1, c.part, c.sifted, c.t1 from posthaste.subscriptions
     where queue_id = p_reader >> 20 and number = (p_reader >> 10) & 1023;
  elsif c.window_claim is not null then
    select s0, s1 into c.s0, c.s1 from posthaste.claims where slot = c.slot and id = c.window_claim;
  end if;
  return c;
end $$;
