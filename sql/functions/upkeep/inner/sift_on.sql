-- posthaste.sift_on: moves a reader that sifts forward to the next entry that it will hand out,
-- so that skipped entries keep no slot even if no worker claims. In bounded steps.
-- Arguments: the fresh reader, the live slots.
-- Returns: whether it moved. Locks: the reader, without waiting. Inserts: claims.
create or replace function posthaste.sift_on(p_reader bigint, l posthaste.live)
returns boolean language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_cursor posthaste.claims;
  v_slice record;
  v_walked int := 0;
  v_filter jsonb;
begin
  if not posthaste.lock_reader(p_reader, false) then
    return false;
  end if;
  l := posthaste.live_slots(); -- its newest claim may lie in a slot that the sequence entered since
  v_cursor := posthaste.cursor_of(p_reader, l);
  if (select q.keyed from posthaste.queue_settings q where q.id = p_reader >> 20) then
    select x.filter into v_filter from posthaste.subscriptions x where x.queue_id = p_reader >> 20 and x.number = (p_reader >> 10) & 1023;
    return posthaste.sift_keyed(v_cursor, v_filter, l);
  end if;
  if v_cursor.part <> 3 then
    return false;
  end if;
  for v_round in 1..16 loop
    v_slice := posthaste.sifted_slice((p_reader >> 20)::int, ((p_reader >> 1) & 511)::int, v_cursor, posthaste.snapshot_now(), 1, l);
    v_cursor := v_slice.c;
    v_walked := v_walked + v_slice.walked;
    if v_cursor.places > 0 then
      -- Up to there.
      v_cursor.last_xid := v_cursor.first_xid;
      v_cursor.last_pos := v_cursor.first_pos - 1;
      v_cursor.ended := false;
      exit;
    end if;
    exit when v_cursor.ended;
  end loop;
  if v_walked <= 64 then
    return false;
  end if;
  perform posthaste.put_claim(posthaste.without_places(v_cursor), null, null, null, false);
  return true;
end $$;
