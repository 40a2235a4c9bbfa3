-- posthaste.late_done: processes deliveries that succeeded but were declared lost before the
-- acknowledgement came. It withdraws the retry if that was not handed out yet, so that the
-- message is not handled twice. The deliveries stay lost, and the caller is told that they no
-- longer belonged to it.
-- Arguments: the claim; the places that came too late, as bits.
-- In an ordered queue it treats only the first message of a key as done: otherwise the message
-- would be recorded before an earlier one.
-- If the reader stays busy for most of a second (less than deadlock_timeout), the message is
-- redelivered, as it would be without this.
-- Locks: the due reader. Reads: outcomes, entries, claims, settlements. Inserts: cancelled.
-- Deletes: parked.
create or replace function posthaste.late_done(c posthaste.claims, p_late bit varying)
returns void language plpgsql volatile
set search_path = pg_catalog, pg_temp set lock_timeout = '900ms' set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off as $$
declare
  v_subscription int := (c.reader >> 10) & 1023;
  -- Released messages are in a lane of their own, which belongs to their lane.
  v_reader bigint := posthaste.reader_key((c.reader >> 20)::int, v_subscription, (c.reader >> 1 & 255)::int, 1);
  v_parked bigint[];
  v_busy bigint[];
  v_head posthaste.head;
begin
  -- At other levels the snapshot is older than the lock.
  if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted')
     or not exists (select from posthaste.outcomes o where o.slot = c.slot and o.claim = c.id and o.outcome = 'lost' and get_bit(p_late, o.place) = 1) then
    return;
  end if;
  perform pg_advisory_xact_lock(posthaste.lock_key(1, v_reader));
  if c.part >= 4 then
    v_parked := array(
      -- Each by its id, here and below: a join may compare each with all parked messages.
      select p.message_id from posthaste.outcomes o
       cross join lateral (select x.message_id, x.attempt from posthaste.parked x where x.message_id = o.message_id and x.subscriber = c.reader >> 10
                            order by x.message_id, x.subscriber limit 1) p
       where o.slot = c.slot and o.claim = c.id and o.outcome = 'lost' and get_bit(p_late, o.place) = 1 and p.attempt = o.attempt + 1);
    if exists (select from posthaste.queue_settings q where q.id = (c.reader >> 20)::int and q.ordered) then
      v_busy := posthaste.lane_busy(coalesce((posthaste.cursor_of(v_reader, posthaste.live_slots())).open, '{}'), posthaste.snapshot_now());
      v_parked := array(
        select p.message_id from unnest(v_parked) u (id)
         cross join lateral (select x.* from posthaste.parked x where x.message_id = u.id and x.subscriber = c.reader >> 10 order by x.message_id, x.subscriber limit 1) p
         where posthaste.key_hash(p.key) <> all (v_busy)
           and (select x.message_id from posthaste.parked x
                 where x.subscriber = p.subscriber and x.key = p.key and (x.ord, x.message_id) < (p.ord, p.message_id) and x.message_id <> all (v_parked)
                 order by x.ord, x.message_id limit 1) is null);
    end if;
    perform posthaste.unpark(c.reader >> 10, v_parked, 'done');
    return;
  end if;
  for v_head in
    select (x.h).* from posthaste.outcomes o
     cross join lateral (select y as h from posthaste.later_heads(array[o.message_id]) y where y.for_subscription = v_subscription order by y.pos desc limit 1) x
     where o.slot = c.slot and o.claim = c.id and o.outcome = 'lost' and get_bit(p_late, o.place) = 1 and (x.h).attempt = o.attempt + 1
  loop
    if (posthaste.find_claim(v_reader, v_head.xid, v_head.pos, v_head.due_at, posthaste.live_slots())).fate = 'waiting'
       and not exists (select from posthaste.cancelled x where x.pos = v_head.pos and x.subscriber = c.reader >> 10) then
      perform posthaste.withdraw(v_head, v_subscription, 'done');
    end if;
  end loop;
exception when lock_not_available then
  null;
end $$;
