-- posthaste.message_states: the states of messages, for each subscription.
-- Arguments: all remaining entries of the wanted messages, as heads, first ones and later
-- ones in any order, and possibly those of dead letters; told: whether attempts are wanted
-- (null if not).
-- Returns: per message and subscription, newest message first: the newest entry that is for
-- it (h), the subscription's number and name, the state, when it may be handed out next (null
-- unless that is in the future), and every attempt, oldest first. Attempts whose claim was
-- reclaimed are unknown and have no row.
-- All of one moment: that of the calling statement.
-- Reads: subscriptions, claims, entries, settlements, notes, outcomes, cancelled,
--   dead_letter_entries, parked, registrations, action_records. Locks: none. Errors: none.
create or replace function posthaste.message_states(p_heads posthaste.head[], p_told boolean default true)
returns table (h posthaste.head, subscription smallint, subscription_name text, state text, due_at timestamptz, attempts jsonb)
language plpgsql stable rows 100
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off set max_parallel_workers_per_gather = 0 as $$
declare
  l posthaste.live := posthaste.live_slots();
  v_now timestamptz := clock_timestamp();
  v record;
  f record;
  v_fate text;
  v_reader bigint;
  v_near posthaste.claims; -- of the fresh message before
  v_newest posthaste.claims; -- of the reader
  v_heads posthaste.head[] := '{}';
  v_numbers smallint[] := '{}';
  v_names text[] := '{}';
  v_states text[] := '{}';
  v_stories jsonb[] := '{}';
  v_claims bigint[] := '{}';
  v_state text;
  v_claim bigint;
  v_head posthaste.head;
begin
  for v in
    -- The newest claims of all readers, at once: most messages that wait are behind them, and a
    -- statement for each message costs more than all else.
    with newest as materialized (
      select r.reader, c.claim, w.s0, w.s1
        from (select distinct posthaste.reader_key(x.queue_id, s.number, x.lane, (x.due_at is not null)::int) as reader
                from unnest(p_heads) x
                join posthaste.subscriptions s on s.queue_id = x.queue_id and s.dropped_at is null) r
       cross join lateral (
         select k as claim from posthaste.claims k
          where k.reader = r.reader and posthaste.in_slots(k.slot, l.a, l.b, l.c, l.d, l.e, l.f)
          order by k.reader, k.seq desc limit 1) c
        left join lateral (
          select k.s0, k.s1 from posthaste.claims k where k.slot = (c.claim).slot and k.id = (c.claim).window_claim
           order by k.slot, k.id limit 1) w on true
    )
    select distinct on (x.message_id, s.number) x as head, x.*, s.number as subscriber, s.name, n.claim as newest, n.s0, n.s1,
           d.message_id is not null as dead, d.story as dead_story, k.outcome as withdrawn,
           p.message_id is not null as parked, p.story as parked_story, p.failures + p.losses > 0 as again, p.not_before
      from unnest(p_heads) x
      join posthaste.subscriptions s on s.queue_id = x.queue_id and s.dropped_at is null
       and (x.for_subscription is null or x.for_subscription = s.number)
      left join posthaste.dead_letter_entries d on d.message_id = x.message_id and d.subscription = s.number
      left join posthaste.parked p on p.message_id = x.message_id and p.subscriber = x.queue_id::bigint << 10 | s.number
      left join posthaste.cancelled k on k.pos = x.pos and k.subscriber = x.queue_id::bigint << 10 | s.number
      left join newest n on n.reader = posthaste.reader_key(x.queue_id, s.number, x.lane, (x.due_at is not null)::int)
     -- Messages sent before the subscription began, or excluded by its filter, are not its own.
     where d.message_id is not null or posthaste.is_for(s, x.for_subscription, x.xid, x.due_at, x.kind, x.headers)
     order by x.message_id desc, s.number, x.pos desc, x.for_subscription -- a dead letter's head, which has the terms that were found, before that of the first entry
  loop
    v_claim := null;
    v_head := v.head;
    if v.dead then
      v_state := 'dead';
    elsif v.parked then
      v_state := case when v.again then 'retrying' when v.not_before > v_now then 'scheduled' else 'ready' end;
      v_head.due_at := v.not_before;
    elsif v.withdrawn is not null then
      -- A carried message is in a later entry, which would be here.
      v_state := case when v.withdrawn in ('cancelled', 'done') then v.withdrawn end;
    else
      v_reader := posthaste.reader_key(v.queue_id, v.subscriber, v.lane, (v.due_at is not null)::int);
      v_newest := v.newest;
      v_newest.s0 := coalesce(v_newest.s0, v.s0);
      v_newest.s1 := coalesce(v_newest.s1, v.s1);
      if v_newest.id is null or v_newest.part < 4 and v.lane < 256 and v_newest.s1 is not null and not posthaste.taken(v_newest, v.xid, v.pos, v.due_at) then
        v_fate := 'waiting';
      elsif v_near.reader = v_reader and (v.xid, v.pos) >= (v_near.first_xid, v_near.first_pos) and (v.xid, v.pos) <= (v_near.last_xid, v_near.last_pos)
         and pg_visible_in_snapshot(v.xid, v_near.s1) and not pg_visible_in_snapshot(v.xid, v_near.s0) then
        -- In the same slice: the windows of a reader do not overlap.
        v_fate := 'handed_out';
        v_claim := v_near.id;
      else
        f := posthaste.find_claim(v_reader, v.xid, v.pos, v.due_at, l);
        v_fate := f.fate;
        v_claim := (f.c).id;
        if (f.c).part in (0, 3) then
          v_near := f.c;
        end if;
      end if;
      if v_fate = 'waiting' then
        -- A replayed message has attempts before, and no failures since: it is ready.
        v_state := case when v.failures + v.losses > 0 then 'retrying' when v.due_at > v_now then 'scheduled' else 'ready' end;
      elsif v_fate = 'purged' then
        v_state := 'cancelled';
      elsif v_fate = 'handed_out' then
        v_state := 'running';
      else
        v_state := null;
      end if;
    end if;
    continue when v_state is null;
    v_heads := v_heads || v_head;
    v_numbers := v_numbers || v.subscriber;
    v_names := v_names || v.name;
    v_states := v_states || v_state;
    v_stories := v_stories || coalesce(case when v.dead then v.dead_story when v.parked then v.parked_story else v.story end, '[]');
    v_claims := v_claims || v_claim;
  end loop;
  return query
    with asked as materialized (
      select * from unnest(v_heads, v_numbers, v_names, v_states, v_stories, v_claims) with ordinality
    ), a (message_id, pos, xid, queue_id, lane, created_at, due_at, for_subscription, attempt, failures, losses, content_type, key, kind,
          reference, headers, terms, old_story, number, name, state, story, claim, n) as (
      select * from asked
    ), ends as materialized (
      select z.claim, e.*
        from (select a.claim, array_agg(a.pos) as poss from a where a.claim is not null group by a.claim) z
       cross join lateral posthaste.ends_of(z.claim, z.poss, p_told) e
    ), told as (
      select a.*, e.claimed_at, e.holder, e.settled_at, e.duration, e.outcome, e.ended_at, e.took, e.error, e.receipt, e.notes, coalesce(a.terms, e.terms) as all_terms,
             case when a.claim is null then a.state when e.settled_at is null then 'running'
                  else coalesce(e.outcome, case when q.mode = 'at_most_once' then 'handed_out' else 'done' end) end as now, k.action
        from a
        join posthaste.queue_settings q on q.id = a.queue_id
        left join ends e on e.claim = a.claim and e.pos = a.pos
        -- Dead here means that the dead letter is gone.
        left join lateral (
          select k.action from posthaste.action_records k
           where k.message_id = a.message_id and k.action in ('discard', 'replay') and (k.details ->> 'subscription')::int = a.number
           order by k.id desc limit 1) k on e.outcome = 'dead'
       where a.claim is null or e.pos is not null
    )
    select row(w.message_id, w.pos, w.xid, w.queue_id, w.lane, w.created_at, w.due_at, w.for_subscription, w.attempt, w.failures, w.losses,
               w.content_type, w.key, w.kind, w.reference, w.headers, w.all_terms, w.old_story)::posthaste.head,
           w.number, w.name, case when w.action = 'discard' then 'discarded' else w.now end,
           case when w.now in ('scheduled', 'retrying') and w.due_at > v_now then w.due_at end,
           case when not p_told then null when w.claim is null then w.story
                -- Only the newest checkpoint is kept, as posthaste.story_add does.
                else case when w.notes ? 'checkpoint' then w.story #- '{-1,checkpoint}' else w.story end || (jsonb_strip_nulls(jsonb_build_object('attempt', w.attempt,
                  'outcome', case when w.now <> 'running' then w.now end,
                  'worker', case when w.holder is not null then coalesce(r.name, 'worker ' || w.holder) end,
                  'claimed_at', w.claimed_at, 'ended_at', coalesce(w.ended_at, w.settled_at),
                  'duration_ms', coalesce(w.took, w.duration), 'error', w.error))
                  -- Nulls are not stripped: a receipt or a checkpoint may contain some.
                  || case when w.receipt is null then '{}' else jsonb_build_object('receipt', w.receipt) end || coalesce(w.notes, '{}')) end
      from told w
      left join posthaste.registrations r on r.id = w.holder
     -- Retried, lost, released or replayed: the following entry is gone.
     where w.action is distinct from 'replay' and w.now in ('scheduled', 'ready', 'running', 'retrying', 'done', 'handed_out', 'dead', 'cancelled', 'expired')
     order by w.n;
end $$;
