-- posthaste.find_claim: which claim of a reader handed an entry out.
-- A binary search over the reader's claims: snapshots and times only grow, and keys grow
-- within a window, so "taken by the time of this claim" is false up to one claim and true
-- from it on. Rows before that claim may have been reclaimed, so the result counts only if
-- the entry lies in that claim's own slice.
-- Arguments: the reader, the entry's key, the live slots. The entry must be for the reader's
-- subscription (posthaste.is_for), of its track, and not withdrawn.
-- Returns: fate, one word:
--   waiting      no claim took it yet
--   handed_out   c handed it out; the snapshots of c are filled in
--   reclaimed    the row of the claim that handed it out is gone
--   purged       it was waiting when the queue was purged
-- If one stable function calls it several times, all results are of one moment.
-- Reads: claims. Locks: none. Errors: none.
create or replace function posthaste.find_claim(p_reader bigint, p_xid xid8, p_pos bigint, p_due timestamptz, l posthaste.live,
  out fate text, out c posthaste.claims)
language plpgsql stable
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off as $$
declare
  v posthaste.claims;
  v_low bigint := 1;
  v_high bigint;
  v_at bigint;
  v_taken boolean;
  v_ord xid8;
begin
  select k.* into v from posthaste.claims k
   where k.reader = p_reader
     and posthaste.in_slots(k.slot, l.a, l.b, l.c, l.d, l.e, l.f)
   order by k.reader, k.seq desc limit 1;
  fate := 'waiting';
  v_high := v.seq;
  v_at := v.seq;
  while v_at is not null loop
    if v.id is not null and v.window_claim is not null then
      select k.s0, k.s1 into v.s0, v.s1 from posthaste.claims k where k.slot = v.slot and k.id = v.window_claim;
    end if;
    if v.s1 is null and v.part <> 5 then
      -- Truncated during this search.
      fate := 'reclaimed';
      c := null;
      return;
    end if;
    if (p_reader >> 1 & 511) >= 256 then
      -- A released message: appended by the claim, right before the claim's own position.
      v_taken := v.id > p_pos;
    elsif v.part = 4 then
      v_ord := coalesce(v_ord, (select e.ord from posthaste.entries e
                                 where e.queue_id = p_reader >> 20 and e.lane = (p_reader >> 1 & 511) and e.ord is not null and e.due_at is null
                                   and e.xid = p_xid and e.ord = p_xid and e.pos = p_pos and ((e.pos >> 22) & 15) = (p_pos >> 22) & 15
                                 order by e.ord, e.pos limit 1),
                               (select e.ord from posthaste.entries e
                                 where e.queue_id = p_reader >> 20 and e.lane = (p_reader >> 1 & 511) and e.ord is not null and e.due_at is null and e.ord <> e.xid
                                   and e.xid = p_xid and e.pos = p_pos and ((e.pos >> 22) & 15) = (p_pos >> 22) & 15
                                 order by e.xid, e.ord, e.pos limit 1));
      v_taken := pg_visible_in_snapshot(p_xid, v.s0)
        or (pg_visible_in_snapshot(p_xid, v.s1) and (v.ended or (v_ord, p_pos) <= (v.last_xid, v.last_pos)));
    else
      v_taken := posthaste.taken(v, p_xid, p_pos, p_due);
    end if;
    if v_taken then
      c := v;
      v_high := v_at;
    elsif v_at = v_high and c.id is null then
      return;
    else
      v_low := v.seq + 1;
    end if;
    exit when v_low >= v_high;
    v_at := v_low + (v_high - v_low) / 2;
    -- The first claim left from v_at on: rows between may have been reclaimed.
    select k.* into v from posthaste.claims k
     where k.reader = p_reader and k.seq >= v_at
       and posthaste.in_slots(k.slot, l.a, l.b, l.c, l.d, l.e, l.f)
     order by k.reader, k.seq limit 1;
  end loop;
  if c.id is null then
    return;
  end if;
  fate := case
    when c.places = 0 and c.first_pos is not null and p_due is null and not pg_visible_in_snapshot(p_xid, c.s0)
     and (coalesce(v_ord, p_xid), p_pos) > (c.first_xid, c.first_pos) then 'purged'
    when c.places = 0 then 'reclaimed'
    when c.part = 5 and p_xid = c.first_xid and p_pos between c.first_pos and c.last_pos then 'handed_out'
    when c.part = 4 and not pg_visible_in_snapshot(p_xid, c.s0)
     and (v_ord, p_pos) >= (c.first_xid, c.first_pos) and (v_ord, p_pos) <= (c.last_xid, c.last_pos) then 'handed_out'
    when c.part in (0, 1, 3) and not pg_visible_in_snapshot(p_xid, c.s0)
     and (p_xid, p_pos) >= (c.first_xid, c.first_pos) and (p_xid, p_pos) <= (c.last_xid, c.last_pos) then 'handed_out'
    when c.part = 2 and pg_visible_in_snapshot(p_xid, c.s0) and p_due > c.t0
     and (p_due, p_pos) >= (c.first_due, c.first_pos) and (p_due, p_pos) <= (c.last_due, c.last_pos) then 'handed_out'
    else 'reclaimed' end;
  if fate <> 'handed_out' then
    c := null;
  end if;
end $$;
