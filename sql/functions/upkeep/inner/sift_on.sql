-- posthaste.sift_on: brings a reader that sifts on to the next entry that it will
-- hand out, so that what it leaves out keeps no slot, also while nobody claims.
-- In bounded steps. Arguments: the fresh reader, the live slots.
-- Returns: whether it moved. Locks: the reader, without waiting. Inserts: claims.
create or replace function posthaste.sift_on(p_reader bigint, l posthaste.live)
returns boolean language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  c posthaste.claims;
  d record;
  v_walked int := 0;
  v_filter jsonb;
begin
  if not posthaste.lock_reader(p_reader, false) then
    return false;
  end if;
  l := posthaste.live_slots(); -- its newest claim may lie in a slot that the sequence came to since
  c := posthaste.cursor_of(p_reader, l);
  if (select q.keyed from posthaste.queue_settings q where q.id = p_reader >> 20) then
    select x.filter into v_filter from posthaste.subscriptions x where x.queue_id = p_reader >> 20 and x.number = (p_reader >> 10) & 1023;
    return posthaste.sift_keyed(c, v_filter, l);
  end if;
  if c.part <> 3 then
    return false;
  end if;
  for v_round in 1..16 loop
    d := posthaste.sifted_slice((p_reader >> 20)::int, ((p_reader >> 1) & 511)::int, c, posthaste.snapshot_now(), 1, l);
    c := d.c;
    v_walked := v_walked + d.walked;
    if c.places > 0 then
      -- Up to there.
      c.last_xid := c.first_xid;
      c.last_pos := c.first_pos - 1;
      c.ended := false;
      exit;
    end if;
    exit when c.ended;
  end loop;
  if v_walked <= 64 then
    return false;
  end if;
  perform posthaste.put_claim(posthaste.without_places(c), null, null, null, false);
  return true;
end $$;
