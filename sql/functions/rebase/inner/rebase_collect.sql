-- posthaste.rebase_collect: finds the unsettled messages of the restored ledger, in temporary
-- tables: rebase_readers, the cursor of each reader, and rebase_work, the entries to append
-- again: needs, the subscriptions that they are for; earlier, subscriptions that handed them out
-- before, or never do; again, subscriptions that handed them out without a settlement; lost, the
-- addition to the story; parks: it is parked, because its queue is keyed. Messages that a fair
-- queue parked ahead of its cursor are withdrawn from the log, and are among the parked ones or
-- were handed out from there; messages that it left in the log are entries like any other.
-- Messages that were cancelled while they ran are not among them.
-- It also copies the history, because the ring is emptied.
-- Called by posthaste.rebase under its locks. Reads: the ring. Inserts: history.
create or replace function posthaste.rebase_collect()
returns void language plpgsql volatile set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  l posthaste.live := row(0, 15, 1, 0, 1, 0)::posthaste.live;
  v_now timestamptz := clock_timestamp();
  v_found bigint := 0;
  v_rows bigint;
  v_claim posthaste.claims;
begin
  create temp table rebase_readers on commit drop as
    select q.id as queue_id, u.number, g as lane, q.keyed, u,
           posthaste.cursor_of(posthaste.reader_key(q.id, u.number, g, 0), l) as c,
           posthaste.cursor_of(posthaste.reader_key(q.id, u.number, g, 1), l) as w
      from posthaste.queue_settings q
      join posthaste.subscriptions u on u.queue_id = q.id and u.dropped_at is null
     cross join lateral generate_series(0, q.lanes - 1) g
     where q.dropped_at is null;
  create temp table rebase_work (n bigint, pos bigint, queue_id int, for_subscription smallint, needs smallint[], earlier smallint[], again boolean, lost jsonb, parks boolean) on commit drop;

  for v_claim in
    select k.* from posthaste.claims k
      join posthaste.subscriptions u on u.queue_id = k.reader >> 20 and u.number = (k.reader >> 10) & 1023 and u.dropped_at is null
      left join (select t.claim, count(*) as parts, max(bit_count(t.bits)) as bits from posthaste.settlements t group by t.claim) s on s.claim = k.id
     where k.places > 0 and coalesce(case when k.single then s.parts else s.bits end, 0) < k.places
     order by k.id
  loop
    insert into pg_temp.rebase_work (pos, queue_id, for_subscription, needs, again, lost, parks)
    select d.pos, v_claim.reader >> 20, (v_claim.reader >> 10) & 1023, array[(v_claim.reader >> 10) & 1023], true,
           jsonb_strip_nulls(jsonb_build_object('attempt', d.attempt, 'outcome', 'lost', 'worker', (select r.name from posthaste.registrations r where r.id = v_claim.holder),
             'claimed_at', v_claim.at, 'ended_at', v_now, 'error', 'the database was restored from a copy that was made while this was handed out'))
             || coalesce(n.notes, '{}'),
           q.keyed
      from posthaste.deliveries_at(v_claim, posthaste.open_places(v_claim)) d, posthaste.queue_settings q,
           lateral (select posthaste.notes_of(v_claim.slot, v_claim.id, d.place) as notes) n
     -- A lost message that was cancelled while it ran has ended.
     where q.id = v_claim.reader >> 20 and (n.notes ? 'cancel_requested_at') is not true;
  end loop;

  for s in 0..15 loop
    execute format($q$
      insert into pg_temp.rebase_work (pos, queue_id, for_subscription, needs, earlier, again, parks)
      select e.pos, e.queue_id, e.for_subscription, x.needs, x.earlier, false, x.keyed and e.due_at is null
        from (select * from posthaste.entries x where ((x.pos >> 22) & 15) = %s) e
       cross join lateral (
         select array_agg(y.number order by y.number) filter (where y.needs) as needs, array_agg(y.number) filter (where not y.needs) as earlier, bool_or(y.keyed) as keyed
           from (
             select k.number, k.keyed,
                    coalesce(posthaste.is_for(k.u, e.for_subscription, e.xid, e.due_at, e.kind, e.headers), false)
                    and not coalesce(case when e.ord is not null and e.due_at is null
                      then pg_visible_in_snapshot(e.xid, (k.c).s0)
                           or pg_visible_in_snapshot(e.xid, (k.c).s1) and ((k.c).ended or (e.ord, e.pos) <= ((k.c).last_xid, (k.c).last_pos))
                      else posthaste.taken(case when e.due_at is null then k.c else k.w end, e.xid, e.pos, e.due_at) end, false)
                    and (select z.pos from posthaste.cancelled z where z.pos = e.pos and z.subscriber = (k.queue_id::bigint << 10 | k.number) order by z.pos, z.subscriber limit 1) is null as needs
               from pg_temp.rebase_readers k
              where k.queue_id = e.queue_id and k.lane = e.lane and (e.for_subscription is null or e.for_subscription = k.number)) y) x
       where x.needs is not null and e.message_id is distinct from 0$q$, s); -- events
    get diagnostics v_rows = row_count;
    v_found := v_found + v_rows;
    raise notice 'looked through slot % of 16: % entries wait so far', s + 1, v_found;
  end loop;
  if exists (select from posthaste.queue_settings q where q.retention is not null and q.dropped_at is null) then
    for s in 0..15 loop
      while not posthaste.keep_history(s) loop
        raise notice 'copying the history of slot % of 16', s + 1;
      end loop;
    end loop;
    -- Of claims that are open, the settled deliveries.
    for v_claim in select k.* from posthaste.history_aside a join posthaste.claims k on k.slot = (a.claim >> 22) & 15 and k.id = a.claim order by k.id loop
      perform posthaste.copy_claim(v_claim, q) from posthaste.queue_settings q where q.id = v_claim.reader >> 20;
    end loop;
  end if;
end $$;
