-- posthaste.holds_slot: whether a claim lies in a slot or holds one of its
-- entries: the first of them from the slice's first key on lies in the slice.
-- Arguments: the claim, slot. Reads: claims, entries, cancelled.
create or replace function posthaste.holds_slot(c posthaste.claims, p_slot int)
returns boolean language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  o posthaste.live := row(p_slot, p_slot, 1, 0, 1, 0);
  v_queue int := c.reader >> 20;
  v_lane int := (c.reader >> 1) & 511;
  w posthaste.claims := c;
  f record;
  d record;
begin
  if c.slot = p_slot then
    return true;
  end if;
  if c.window_claim is not null and c.s1 is null then
    select k.s0, k.s1 into w.s0, w.s1 from posthaste.claims k where k.slot = c.slot and k.id = c.window_claim;
  end if;
  if c.part >= 4 then
    -- Their first row in the slot, of slices that are not long.
    return exists (select from posthaste.keyed_rows(w, posthaste.live_slots()) k where (k.pos >> 22) & 15 = p_slot);
  end if;
  -- Of a sifted slice also what it leaves out counts, while the claim is open.
  if c.part in (0, 3) then
    select * into f from posthaste.fresh_slice(v_queue, v_lane, w.s0, w.s1, c.first_xid, c.first_pos - 1, 1, o);
    return f.places > 0 and (f.first_xid, f.first_pos) <= (c.last_xid, c.last_pos);
  end if;
  w.last_xid := c.first_xid;
  w.last_pos := c.first_pos - 1;
  w.last_due := c.first_due;
  loop
    d := posthaste.due_slice(v_queue, ((c.reader >> 10) & 1023)::int, v_lane, w, 1, true, o);
    w := d.w;
    if w.places > 0 then
      return case when c.part = 1 then (w.first_xid, w.first_pos) <= (c.last_xid, c.last_pos)
                  else (w.first_due, w.first_pos) <= (c.last_due, c.last_pos) end;
    end if;
    exit when w.ended;
  end loop;
  return false;
end $$;
