-- posthaste.put_note: records what a handler noted, or that its message was cancelled, if the
-- delivery has not ended.
-- Arguments: the delivery; any of a checkpoint, a progress with its text, and log lines; cancel.
-- Returns: whether it was recorded; false if the delivery ended, or never was.
-- A note is inserted under the next number of its delivery. Whatever ends the delivery without
-- success first inserts the last number (posthaste.close_notes), then reads the notes. So of
-- two at the same moment one waits for the other by the unique key: a note that was accepted is
-- seen by the end of its delivery, and one that comes after the end is not accepted.
-- Errors: 40001 above READ COMMITTED, if the delivery ended after the snapshot.
-- Locks: only those of inserting. The claim's row is read first: its lock keeps the slot from
-- being truncated. Inserts: notes. Reads: claims, settlements.
create or replace function posthaste.put_note(p_delivery bigint, p_checkpoint jsonb, p_progress real, p_text text, p_log text, p_cancel boolean default false)
returns boolean language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
  v_claim bigint := p_delivery >> 12;
  v_slot bigint := (p_delivery >> 34) & 15;
  v_place int := p_delivery & 4095;
  v_put boolean;
  v_held boolean;
begin
  loop
    -- By the variables, not by columns of the claim: so the newest rows are found by the indexes.
    with state as (
      select k.places > v_place
             and case when k.single then not exists (select from posthaste.settlements s where s.slot = v_slot and s.claim = v_claim and s.part = v_place)
                      else coalesce((select get_bit(s.bits, v_place) from posthaste.settlements s where s.slot = v_slot and s.claim = v_claim and s.part = 0
                                      order by s.slot, s.claim, s.part, s.number desc limit 1), 0) = 0 end as held
        from posthaste.claims k where k.slot = v_slot and k.id = v_claim
    ), put as (
      insert into posthaste.notes (slot, claim, place, number, cancel, checkpoint, progress, progress_text, log)
      select v_slot, v_claim, v_place,
             coalesce((select x.number from posthaste.notes x where x.slot = v_slot and x.claim = v_claim and x.place = v_place
                        order by x.slot, x.claim, x.place, x.number desc limit 1), 0) + 1,
             p_cancel, p_checkpoint, p_progress, p_text, p_log
        from state z where z.held
      on conflict do nothing
      returning 1
    )
    select (select count(*) from put) = 1, z.held into v_put, v_held from (select) one left join state z on true;
    if v_put or v_held is not true then
      return v_put;
    end if;
    -- Another note of the delivery, or its end, came first: look again.
  end loop;
end $$;
