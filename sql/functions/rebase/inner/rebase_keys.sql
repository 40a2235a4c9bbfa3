-- posthaste.rebase_keys: orders the parked messages of keyed queues by their ids, which is the
-- order of their sends, before all messages sent from now on, and makes the next claims look at
-- their keys. Keys that are paused, stopped or short of tokens stay so.
-- Called by posthaste.rebase under its locks. Updates: parked, keys,
-- dead_letter_entries. Inserts: entries_other (events).
create or replace function posthaste.rebase_keys()
returns void language plpgsql volatile set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_first constant xid8 := '1'; -- as in posthaste.rebase_append
  v_now timestamptz := clock_timestamp();
  r record;
begin
  update posthaste.dead_letter_entries set ord = v_first where ord is not null;
  update posthaste.parked set ord = v_first where ord <> v_first;
  -- Events that no claim has read yet.
  for r in
    select k.queue_id::bigint << 10 | k.number as subscriber, k.lane, o ->> 'key' as key, (o ->> 'stop')::bigint as stop, (o ->> 'go')::bigint as go
      from pg_temp.rebase_readers k
      join posthaste.entries e on e.queue_id = k.queue_id and e.lane = k.lane and e.for_subscription = k.number and e.due_at is not null and e.message_id = 0
     cross join lateral jsonb_array_elements(e.story) o
     where k.keyed and posthaste.taken(k.w, e.xid, e.pos, e.due_at) is not true and (o ? 'stop' or o ? 'go')
     order by e.pos
  loop
    if r.stop is not null then
      insert into posthaste.keys as z (subscriber, key, lane, hash, stopped_by) values (r.subscriber, r.key, r.lane, posthaste.key_hash(r.key), r.stop)
      on conflict (subscriber, key) do update set stopped_by = excluded.stopped_by;
    else
      update posthaste.keys z set stopped_by = null where z.subscriber = r.subscriber and z.key = r.key and z.stopped_by = r.go;
    end if;
  end loop;
  update posthaste.keys set blocked = false, low_ord = '0', low_id = 0, waits = false, wake_at = null, turn = null;
  perform posthaste.block_keys(x.subscriber, x.lane, array_agg(x.key), array_agg(v_first), array_agg(x.id))
     from (select p.subscriber, p.lane, p.key, min(p.message_id) as id from posthaste.parked p group by 1, 2, 3) x
    group by x.subscriber, x.lane;
  delete from posthaste.keys z where not z.blocked and z.paused_at is null and z.stopped_by is null and z.tokens is null;
  perform posthaste.lane_event(x.subscriber, x.lane, jsonb_agg(jsonb_build_object('key', x.key) order by x.id), v_now)
     from (select p.subscriber, p.lane, p.key, min(p.message_id) as id, row_number() over (partition by p.subscriber, p.lane order by min(p.message_id)) / 256 as part
             from posthaste.parked p group by 1, 2, 3) x
    group by x.subscriber, x.lane, x.part;
  perform posthaste.lane_event(p.subscriber, p.lane, jsonb_agg(distinct jsonb_build_object('key', p.key)), p.not_before)
     from posthaste.parked p where p.not_before > v_now group by p.subscriber, p.lane, p.not_before;
end $$;
