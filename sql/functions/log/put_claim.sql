-- posthaste.put_claim: writes a claim, which is the reader's new cursor.
-- Arguments: c as the new row except for id, seq and holder, derived from the previous row;
-- holder and number, or the end of the lease. A row without places has no holder: it has
-- nothing to settle. closed: this row has nothing to settle either, because all its places
-- are settled here; of its messages only the delivery is known.
-- Returns: the row written. Called under the reader's lock. If places of it are expired, the
-- caller calls posthaste.settle_expired with it.
-- Inserts: claims, leases, settlements.
create or replace function posthaste.put_claim(c posthaste.claims, p_holder bigint, p_number bigint, p_until timestamptz, p_single boolean,
  p_closed boolean default false)
returns posthaste.claims language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_before posthaste.claims := c;
  s0 pg_snapshot := c.s0;
  s1 pg_snapshot := c.s1;
begin
  -- The transaction's id comes before the position: reclaiming relies on it.
  perform pg_current_xact_id();
  c.id := nextval('posthaste.positions');
  c.slot := (c.id >> 22) & 15;
  -- Snapshots with many ids in progress are stored in the window's first claim of each slot,
  -- and the others point to it.
  if v_before.id is not null and v_before.slot = c.slot and pg_column_size(c.s0) + pg_column_size(c.s1) > 256
     and exists (select from posthaste.claims k where k.slot = c.slot and k.id = coalesce(v_before.window_claim, v_before.id)
                   and k.s1 is not null and k.s1::text = c.s1::text and k.s0::text = c.s0::text) then
    c.window_claim := coalesce(v_before.window_claim, v_before.id);
    c.s0 := null;
    c.s1 := null;
  else
    c.window_claim := null;
  end if;
  insert into posthaste.claims (slot, places, part, single, alone, ended, id, reader, seq, total, holder, number, at, window_claim,
    first_xid, first_pos, last_xid, last_pos, first_due, last_due, t0, t1, s0, s1, sifted, withheld, expired, keys, open, busy, turns)
  values (c.slot, c.places, c.part, p_single, coalesce(c.alone, false), c.ended, c.id, c.reader, c.seq + 1,
          c.total + c.places - coalesce(bit_count(c.withheld), 0), p_holder, p_number, clock_timestamp(), c.window_claim,
          c.first_xid, c.first_pos, c.last_xid, c.last_pos, c.first_due, c.last_due, c.t0, c.t1, c.s0, c.s1, c.sifted, c.withheld, case when c.places > 0 then c.expired end, c.keys, c.open, c.busy, c.turns)
  returning * into c;
  if p_until is not null and c.places > 0 then
    insert into posthaste.leases (slot, claim, subscriber, until) values (c.slot, c.id, c.reader >> 10, p_until);
  end if;
  if p_closed and c.places > 0 then
    insert into posthaste.settlements (slot, claim, part, number, reader, worker, fresh, done, bits)
    values (c.slot, c.id, 0, 1, c.reader, p_holder, c.places, 0, repeat('1', c.places)::bit varying);
  end if;
  c.s0 := s0;
  c.s1 := s1;
  return c;
end $$;
