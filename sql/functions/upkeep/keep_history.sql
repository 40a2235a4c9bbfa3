-- posthaste.keep_history: before a slot is truncated, copies its messages to the history, for
-- queues that have a retention.
-- Called when the slot is free: every reader is past it, and no open claim holds any of it. So
-- it copies closed claims of these readers, and withdrawn messages. Each reader's claims are
-- copied in their order, once; the progress is written in the same transaction. An open claim is
-- stored in history_aside and copied when it is closed; it holds nothing of the slot.
-- Arguments: slot. Returns: whether all is copied; if not, call it again in a later transaction:
-- one copies about 10,000 deliveries, or runs for a second.
-- Called under the maintenance lock. Inserts: history. Updates: history_cursors,
-- history_aside, history_parts, cancelled.
create or replace function posthaste.keep_history(p_slot int)
returns boolean language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
declare
  l posthaste.live := posthaste.live_slots();
  q posthaste.queue_settings;
  v_claim posthaste.claims;
  v_reader bigint;
  v_seq bigint;
  v_from bigint;
  v_left int := 10000;
  v_stop timestamptz := clock_timestamp() + interval '1 second';
begin
  for q in select * from posthaste.queue_settings x where x.retention is not null and x.dropped_at is null order by x.id loop
    for v_reader in
      select posthaste.reader_key(q.id, s.number, x.lane, x.track)
        from posthaste.subscriptions s
       cross join (select g, t from generate_series(0, q.lanes - 1) g cross join generate_series(0, 1) t
                   union all select g + 256, 1 from generate_series(0, q.lanes - 1) g where q.keyed) x (lane, track) -- released messages
       where s.queue_id = q.id and s.dropped_at is null order by 1
    loop
      -- The claims aside: those that hold something of the slot are closed by now.
      for v_claim in
        select k.* from posthaste.history_aside a
         cross join lateral (select k.* from posthaste.claims k where k.slot = posthaste.slot_of(a.claim) and k.id = a.claim order by k.slot, k.id limit 1) k
         where a.reader = v_reader order by a.reader, a.claim
      loop
        if not posthaste.claim_open(v_claim) then
          perform posthaste.copy_claim(v_claim, q);
          delete from posthaste.history_aside a where a.reader = v_reader and a.claim = v_claim.id;
          v_left := v_left - v_claim.places;
        end if;
      end loop;
      v_from := coalesce((select h.seq from posthaste.history_cursors h where h.reader = v_reader), 0);
      v_seq := v_from;
      for v_claim in
        select k.* from posthaste.claims k
         where k.reader = v_reader and k.seq > v_from and posthaste.in_slots(k.slot, l.a, l.b, l.c, l.d, l.e, l.f)
         order by k.reader, k.seq
      loop
        exit when v_left <= 0 or clock_timestamp() > v_stop;
        if posthaste.claim_open(v_claim) then
          insert into posthaste.history_aside (reader, claim) values (v_reader, v_claim.id);
        elsif v_claim.places > 0 then
          perform posthaste.copy_claim(v_claim, q);
          v_left := v_left - v_claim.places;
        end if;
        v_seq := v_claim.seq;
      end loop;
      if v_seq > v_from then
        insert into posthaste.history_cursors (reader, seq) values (v_reader, v_seq) on conflict (reader) do update set seq = excluded.seq;
      end if;
      if v_left <= 0 or clock_timestamp() > v_stop then
        return false;
      end if;
    end loop;
  end loop;
  return posthaste.copy_withdrawn(p_slot, v_left) < v_left;
end $$;
