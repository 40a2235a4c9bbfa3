-- posthaste.find_delivery: where one entry stands for one subscription.
-- Arguments: the entry's queue, lane, transaction, position, due time and the
-- one subscription it is for (null: every one); the subscription's number.
-- Returns: fate, one word, and claim and place where it was handed out:
--   waiting      no claim took it yet
--   handed_out   the delivery is claim * 4096 + place
--   cancelled    no claim of this subscription will hand it out
--   reclaimed    the claim's row, or a part of its slice, is gone: it is settled
--   other        the entry is another subscription's
-- Exact for the moment of the statement that calls it; for a longer one hold the
-- reader's lock. Reads: claims, entries, cancelled. Errors: none.
create or replace function posthaste.find_delivery(p_queue int, p_lane int, p_xid xid8, p_pos bigint, p_due_at timestamptz,
  p_for_subscription int, p_subscription int, out fate text, out claim bigint, out place int)
language plpgsql stable
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off as $$
declare
  v record;
begin
  if p_for_subscription <> p_subscription then
    fate := 'other';
    return;
  end if;
  if exists (select from posthaste.cancelled x where x.pos = p_pos and x.subscriber = p_queue::bigint << 10 | p_subscription) then
    fate := 'cancelled';
    return;
  end if;
  v := posthaste.find_claim(posthaste.reader_key(p_queue, p_subscription, p_lane, (p_due_at is not null)::int),
    p_xid, p_pos, p_due_at, posthaste.live_slots());
  fate := v.fate;
  if fate = 'handed_out' then
    claim := (v.c).id;
    select p.place into place from posthaste.places_of(claim) p where p.pos = p_pos;
    if place is null then
      fate := 'reclaimed';
      claim := null;
    end if;
  end if;
end $$;
