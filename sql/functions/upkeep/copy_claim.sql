-- posthaste.copy_claim: copies the messages that a closed claim settled finally to the history:
-- done and cancelled ones, and deliveries of at-most-once queues. Messages that were retried,
-- lost or released continue in a later entry, which has their story; dead ones are kept as dead
-- letters.
-- Arguments: the claim's row, the settings of its queue. Inserts: history.
-- Reads: entries, settlements, notes, outcomes, registrations, erased.
create or replace function posthaste.copy_claim(c posthaste.claims, q posthaste.queue_settings)
returns void language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
declare
  v_last timestamptz;
  v_part smallint;
  v_usual text := case when q.mode = 'at_most_once' then 'handed_out' else 'done' end;
  v_worker text := (select coalesce(r.name, 'worker ' || c.holder) from (select 1) one left join posthaste.registrations r on r.id = c.holder where c.holder is not null);
  v_noted boolean := exists (select from posthaste.notes n where n.slot = c.slot and n.claim = c.id and not n.last);
begin
  select greatest((select max(s.at) from posthaste.settlements s where s.slot = c.slot and s.claim = c.id),
                  (select max(o.at) from posthaste.outcomes o where o.slot = c.slot and o.claim = c.id)) + q.retention into v_last;
  if v_last is null or v_last <= clock_timestamp() then
    return; -- expired already
  end if;
  v_part := posthaste.history_part(v_last, q.retention);
  insert into posthaste.history (part, subscription, queue_id, message_id, created_at, settled_at, expires_at, erased_at, state,
                                 content_type, key, kind, reference, headers, terms, attempts, payload)
  select v_part, (c.reader >> 10) & 1023, q.id, x.message_id, x.created_at, x.ended, x.ended + q.retention, e.at, x.outcome,
         x.content_type, case when e.at is null then x.key end, x.kind, case when e.at is null then x.reference end,
         case when e.at is null then posthaste.all_headers(x.headers, x.trace) end, case when e.at is null then x.all_terms end,
         case when e.at is null then x.attempts else posthaste.bare_story(x.attempts) end, case when e.at is null and q.retain_payload then x.payload end
    from (
      select d.*, coalesce(d.terms, o.terms) as all_terms, coalesce(o.outcome, v_usual) as outcome, coalesce(o.at, t.at) as ended,
             coalesce(d.story, '[]') || (jsonb_strip_nulls(jsonb_build_object('attempt', d.attempt, 'outcome', coalesce(o.outcome, v_usual), 'worker', v_worker,
               'claimed_at', c.at, 'ended_at', coalesce(o.at, t.at), 'duration_ms', coalesce(o.duration, t.duration), 'error', o.error))
               -- Nulls are not stripped: a receipt may contain some.
               || case when o.receipt is null then '{}' else jsonb_build_object('receipt', o.receipt) end
               || case when v_noted then coalesce(posthaste.notes_of(c.slot, c.id, d.place), '{}') else '{}' end) as attempts
        from posthaste.deliveries_of(c) d
        left join lateral (
          select * from posthaste.outcomes y where y.slot = c.slot and y.claim = c.id and y.place = d.place order by y.slot, y.claim, y.place limit 1) o on true
        left join lateral (
          select t.at, t.duration from posthaste.settlements t
           where t.slot = c.slot and t.claim = c.id and t.part = case when c.single then d.place else 0 end
             and get_bit(t.bits, case when c.single then 0 else d.place end) = 1
           order by t.number limit 1) t on true) x
    left join lateral (select y.at from posthaste.erased y where y.message_id = x.message_id order by y.message_id limit 1) e on true
   where x.outcome in ('done', 'handed_out', 'cancelled', 'expired') and x.ended is not null;
exception when sqlstate 'PH409' then
  -- Its entries are gone, so it was copied with them before, or cannot be copied any more.
  raise warning 'claim % cannot be copied to the history: %', c.id, sqlerrm;
end $$;
