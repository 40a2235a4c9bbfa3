-- posthaste.settle_claim: sets bits of one claim: exactly one of a settle, a
-- rescue and a late settle wins each delivery, whatever their order.
-- Arguments: the claim's row; the places wanted, as bits, as long as the claim
-- has places; which of them are plainly done; how long handling took.
-- Returns: the bits that this call set. Inserts: settlements. Reads: keys, limit_states.
-- The claim's row must have been read in this transaction: the lock on its slot
-- that this took keeps the slot from being truncated before the bits are in.
create or replace function posthaste.settle_claim(c posthaste.claims, p_wanted bit varying, p_done bit varying, p_duration real)
returns bit varying language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  v_bits bit varying;
  v_number int;
  v_fresh bit varying;
  v_place int;
begin
  if c.single then
    -- Settled blindly, never reading settlements: under SERIALIZABLE a read
    -- would fail against every neighbour.
    v_fresh := p_wanted & ~p_wanted;
    for v_place in
      with put as (
        insert into posthaste.settlements (slot, claim, part, number, reader, worker, duration, fresh, done, bits)
        select c.slot, c.id, g, 1, c.reader, c.holder, p_duration, 1, get_bit(p_done, g), B'1'
          from generate_series(0, c.places - 1) g
         where get_bit(p_wanted, g) = 1
         order by g
        on conflict do nothing
        returning part
      ) select part from put
    loop
      v_fresh := set_bit(v_fresh, v_place, 1);
    end loop;
  else
    loop
      select s.number, s.bits into v_number, v_bits from posthaste.settlements s
       where s.slot = c.slot and s.claim = c.id and s.part = 0
       order by s.slot, s.claim, s.part, s.number desc limit 1;
      if v_number is null then
        v_number := 0;
        v_bits := p_wanted & ~p_wanted;
      end if;
      v_fresh := p_wanted & ~v_bits;
      if bit_count(v_fresh) = 0 then
        return v_fresh;
      end if;
      insert into posthaste.settlements (slot, claim, part, number, reader, worker, duration, fresh, done, bits)
      values (c.slot, c.id, 0, v_number + 1, c.reader, c.holder, p_duration, bit_count(v_fresh), bit_count(v_fresh & p_done), v_bits | v_fresh)
      on conflict do nothing;
      exit when found;
    end loop;
  end if;
  if c.keys is null or posthaste.no_wake() then
    return v_fresh;
  end if;
  -- Rings where keys wait for a run to end. A claim that begins to wait at this very moment
  -- is not seen: it looks again soon.
  if exists (select from posthaste.keys z
              where z.subscriber = c.reader >> 10 and z.lane = (c.reader >> 1 & 255) and z.waits) then
    perform posthaste.ring((c.reader >> 20)::int);
  end if;
  -- Wakes who listens where the queue's concurrency has been used up for 50 ms. Each that
  -- was refused within those looks again after 50 ms (posthaste.claim_ruled), and workers at
  -- once when they settle: in dense traffic a notification for each settle would have all
  -- commits of the database wait for each other. Not by the bell, which those who wait for a
  -- limit do not hold: what is sent is nothing to them.
  if (select z.full_since from posthaste.limit_states z where z.subscriber = c.reader >> 10 order by z.subscriber desc, z.id desc limit 1) <= clock_timestamp() - interval '50 milliseconds' then
    perform pg_notify('posthaste', (c.reader >> 20)::text);
  end if;
  return v_fresh;
end $$;
