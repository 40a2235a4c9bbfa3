-- posthaste.settle_claim: sets bits of one claim. For each delivery exactly one of a settle,
-- a rescue and a late settle succeeds, in whatever order they come.
-- Arguments: the claim's row; the wanted places, as bits, as many as the claim has places;
-- which of them succeeded without details; the duration of the handler.
-- Returns: the bits that this call set. Inserts: settlements. Reads: keys, limit_states.
-- The claim's row must have been read in this transaction: the lock on its slot that the read
-- took prevents that the slot is truncated before the bits are written.
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
    -- Settled blindly, never reading settlements: under SERIALIZABLE a read would conflict
    -- with every concurrent settle.
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
  -- Notifies if keys wait for a run to end. A claim that begins to wait at this very moment is
  -- not seen: it looks again soon.
  if exists (select from posthaste.keys z
              where z.subscriber = c.reader >> 10 and z.lane = (c.reader >> 1 & 255) and z.waits) then
    perform posthaste.ring((c.reader >> 20)::int);
  end if;
  -- Wakes workers that listen when the queue's concurrency has been used up for 50 ms. A claim
  -- that found it used up within that time looks again after 50 ms (posthaste.claim_ruled),
  -- and workers look at once when they settle: in dense traffic a notification for each settle
  -- would make all commits of the database wait for each other. It does not use the bell,
  -- which workers that wait for a limit do not hold, because they need not hear of sends.
  if (select z.full_since from posthaste.limit_states z where z.subscriber = c.reader >> 10 order by z.subscriber desc, z.id desc limit 1) <= clock_timestamp() - interval '50 milliseconds' then
    perform pg_notify('posthaste', (c.reader >> 20)::text);
  end if;
  return v_fresh;
end $$;
