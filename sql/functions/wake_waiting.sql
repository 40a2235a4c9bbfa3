-- posthaste.wake_waiting: rings where keys wait for a run to end, after one has,
-- and wakes who listens where a queue's concurrency has been used up for 50 ms.
-- A claim that begins to wait at this very moment is not seen: it looks again soon. So
-- does each that was refused within those 50 ms, after 50 ms (posthaste.claim_ruled), and
-- workers at once when they settle: in dense traffic a notification for each settle would
-- have all commits of the database wait for each other.
-- Arguments: the claim that was settled in part. Reads: keys, limit_states.
create or replace function posthaste.wake_waiting(c posthaste.claims)
returns void language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off as $$
begin
  if posthaste.no_wake() then
    return;
  end if;
  if exists (select from posthaste.keys z
              where z.subscriber = c.reader >> 10 and z.lane = (c.reader >> 1 & 255) and z.waits) then
    perform posthaste.ring((c.reader >> 20)::int);
  end if;
  -- Not by the bell, which those who wait for a limit do not hold: what is sent is
  -- nothing to them.
  if (select z.full_since from posthaste.limit_states z where z.subscriber = c.reader >> 10 order by z.subscriber desc, z.id desc limit 1) <= clock_timestamp() - interval '50 milliseconds' then
    perform pg_notify('posthaste', (c.reader >> 20)::text);
  end if;
end $$;
