-- posthaste.holds_slot: whether a claim lies in a slot or holds one of its entries: the slot's
-- first entry at or after the slice's first key is in the slice.
-- Arguments: the claim, slot. Reads: claims, entries, cancelled.
create or replace function posthaste.holds_slot(c posthaste.claims, p_slot int)
returns boolean language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_only posthaste.live := row(p_slot, p_slot, 1, 0, 1, 0);
  v_queue int := c.reader >> 20;
  v_lane int := (c.reader >> 1) & 511;
  v_window posthaste.claims := c;
  f record;
  v_slice record;
begin
  if c.slot = p_slot then
    return true;
  end if;
  if c.window_claim is not null and c.s1 is null then
    select k.s0, k.s1 into v_window.s0, v_window.s1 from posthaste.claims k where k.slot = c.slot and k.id = c.window_claim;
  end if;
  if c.part >= 4 then
    -- Their first row in the slot, for slices that are not long.
    return exists (select from posthaste.keyed_rows(v_window, posthaste.live_slots()) k where posthaste.slot_of(k.pos) = p_slot);
  end if;
  -- Of a sifted slice its skipped entries count, too, while the claim is open.
  if c.part in (0, 3) then
    select * into f from posthaste.fresh_slice(v_queue, v_lane, v_window.s0, v_window.s1, c.first_xid, c.first_pos - 1, 1, v_only);
    return f.places > 0 and (f.first_xid, f.first_pos) <= (c.last_xid, c.last_pos);
  end if;
  v_window.last_xid := c.first_xid;
  v_window.last_pos := c.first_pos - 1;
  v_window.last_due := c.first_due;
  loop
    v_slice := posthaste.due_slice(v_queue, ((c.reader >> 10) & 1023)::int, v_lane, v_window, 1, true, v_only);
    v_window := v_slice.w;
    if v_window.places > 0 then
      return case when c.part = 1 then (v_window.first_xid, v_window.first_pos) <= (c.last_xid, c.last_pos)
                  else (v_window.first_due, v_window.first_pos) <= (c.last_due, c.last_pos) end;
    end if;
    exit when v_window.ended;
  end loop;
  return false;
end $$;
