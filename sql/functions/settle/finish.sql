-- posthaste.finish: processes deliveries that were just settled in another way than by plain
-- success: outcome rows, new entries, dead letters, all in the transaction that settled them.
-- Arguments: the claim; parallel arrays of places, requested outcomes ('done' with a receipt,
-- 'retried', 'dead', 'lost', 'released', 'set_aside', 'expired'), error texts, waits in seconds (null: the queue's
-- backoff, and no wait for 'released'), receipts, durations in milliseconds, terms that the
-- handler found for messages sent without any (arrays of strings, null for none); those from
-- the waits on may be omitted; noted: whether there may be notes.
-- Returns: place, its outcome, when the next attempt may start.
-- A failed or lost message is dead once failures and losses while alone reach its maximum. A
-- loss does not count if the attempt has advanced its checkpoint. A released one keeps its
-- attempt, and is in the story only if it has notes. One that is set aside becomes 'released', in the lane of its
-- kind. An expired one was not handed out. One whose message was cancelled while it ran becomes
-- 'cancelled' unless it is done: it is neither retried nor a dead letter.
-- In a keyed queue unfinished messages are parked, and their keys with them, and come back by a
-- claim.
-- Inserts: outcomes, entries_other, words, dead_letter_entries, parked, limit_refunds. Updates:
-- queue_settings, for new kinds. Reads: claims, entries, notes.
create or replace function posthaste.finish(c posthaste.claims, p_places int[], p_outcomes text[], p_errors text[],
  p_waits double precision[] default '{}', p_receipts jsonb[] default '{}', p_durations real[] default '{}', p_terms jsonb[] default '{}',
  p_noted boolean default true)
returns table (place int, outcome text, due_at timestamptz)
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_queue int := c.reader >> 20;
  v_subscription smallint := (c.reader >> 10) & 1023;
  v_lane smallint := (c.reader >> 1) & 511;
  q posthaste.queue_settings;
  v_now timestamptz := clock_timestamp();
  -- False for a dropped subscription, so also for a dropped queue.
  v_kept boolean := coalesce((select u.dropped_at is null from posthaste.subscriptions u where u.queue_id = v_queue and u.number = v_subscription), false);
  v_worker text := (select w.name from posthaste.registrations w where w.id = c.holder);
begin
  -- Its slice is read by the claim's snapshots.
  perform posthaste.refuse_copy();
  select * into q from posthaste.queue_settings where id = v_queue;
  if q.rate is not null and 'set_aside' = any (p_outcomes) then
    insert into posthaste.limit_refunds (subscriber, tokens) values (c.reader >> 10, cardinality(array_positions(p_outcomes, 'set_aside')));
  end if;
  if not q.keyed and 'set_aside' = any (p_outcomes) then
    q := posthaste.aside_lanes(v_queue, array(
      select distinct coalesce(d.kind, '')
        from posthaste.deliveries_at(c, array(select u.place from unnest(p_places, p_outcomes) u (place, wanted) where u.wanted = 'set_aside')) d));
  elsif not q.keyed and v_lane >= 4 * q.width then
    -- It fails in the lane of its kind, and comes back there.
    q := posthaste.aside_lanes(v_queue, q.kind_lanes[v_lane - 4 * q.width + 1:v_lane - 4 * q.width + 1]);
  end if;
  return query
    with asked as (
      select u.place, case when u.wanted = 'set_aside' then 'released' else u.wanted end as wanted, u.wanted = 'set_aside' as aside, u.error, u.wait, u.receipt, u.duration, case when u.found is not null then array(select jsonb_array_elements_text(u.found)) end as found
        from unnest(p_places, p_outcomes, p_errors, p_waits, p_receipts, p_durations, p_terms) u (place, wanted, error, wait, receipt, duration, found)
    ), noted as (
      select a.*, case when p_noted and a.wanted <> 'done' then posthaste.notes_of(c.slot, c.id, a.place) end as notes from asked a
    ), counted as (
      select a.*, d.pos, d.message_id, d.created_at, d.attempt, d.content_type, d.key, d.kind, d.reference, d.headers,
             coalesce(d.terms, a.found) as terms, d.terms is null as unnamed, d.trace, d.story, d.payload, d.ord,
             d.failures + (a.wanted in ('retried', 'dead'))::int as failures,
             d.losses + x.counts::int as losses, d.losses_alone + (x.counts and c.alone)::int as losses_alone, d.ages_from
        from noted a
        join posthaste.deliveries_at(c, p_places) d on d.place = a.place
       cross join lateral (select a.wanted = 'lost' and (a.notes ? 'checkpoint' and a.notes -> 'checkpoint' is distinct from d.story -> -1 -> 'checkpoint') is not true as counts) x
    ), decided as (
      select x.*, coalesce(case when x.aside then l.lane end, v_lane) as lane,
             case when x.notes ? 'cancel_requested_at' then 'cancelled'
                  when x.wanted in ('retried', 'lost') and x.failures + x.losses_alone >= o.most then 'dead' else x.wanted end as became,
             -- The handler's values are recorded, whatever they are.
             least(posthaste.last_time() - interval '1 second', v_now + make_interval(secs => greatest(0, least(9e12, case x.wanted
               when 'retried' then coalesce(x.wait,
                 random() * least(o.max, o.base * 2 ^ least(x.failures - 1, 60)))
               when 'released' then case when not x.aside then coalesce(x.wait, 0) when l.lane is null then 1 else 0 end
               else 0
             end)))) as next
        from counted x
       cross join lateral posthaste.attempt_options(x.headers, x.kind, q) o
       cross join lateral (
         select case when not q.keyed and coalesce(x.kind, '') = any (q.kinds_aside) then 4 * q.width + array_position(q.kind_lanes, coalesce(x.kind, '')) - 1 end as lane) l
    ), told as (
      select y.*,
             case when y.wanted = 'released' and y.notes is null then coalesce(y.story, '[]')
                  else posthaste.story_add(y.story, jsonb_strip_nulls(jsonb_build_object(
                         'attempt', y.attempt, 'outcome', case when y.wanted = 'lost' then 'lost' else y.became end, 'worker', v_worker,
                         'claimed_at', c.at, 'ended_at', v_now, 'duration_ms', y.duration, 'error', y.error))
                         -- Nulls inside a receipt or a checkpoint are kept.
                         || case when y.receipt is null then '{}' else jsonb_build_object('receipt', y.receipt) end || coalesce(y.notes, '{}'))
             end as story_now
        from decided y
    ), outcome_rows as (
      insert into posthaste.outcomes (slot, claim, place, attempt, pos, message_id, reader, at, worker, duration, due_at, outcome, error, receipt, terms)
      select c.slot, c.id, z.place, z.attempt, z.pos, z.message_id, c.reader, v_now, c.holder, z.duration,
             case when z.became in ('retried', 'lost', 'released') then z.next end, z.became, z.error, z.receipt,
             -- If the message continues, its next entry has them.
             case when z.unnamed and z.became in ('done', 'dead', 'cancelled') then z.terms end
        from told z
    ), named as (
      insert into posthaste.words (slot, message_id, pos, queue_id, lane, word)
      select c.slot, z.message_id, z.pos, v_queue, v_lane, w
        from told z cross join lateral unnest(posthaste.words_of(null, z.terms)) w
       where z.unnamed and z.became in ('done', 'dead', 'cancelled')
    ), again as (
      insert into posthaste.entries_other (message_id, created_at, due_at, queue_id, lane, for_subscription, attempt, failures, losses, losses_alone, ages_from,
                                     content_type, key, kind, reference, headers, terms, trace, story, payload)
      select z.message_id, z.created_at, z.next, v_queue, z.lane, v_subscription,
             least(z.attempt + (z.became <> 'released')::int, 32767), z.failures, least(z.losses, 32767), z.losses_alone, z.ages_from,
             z.content_type, z.key, z.kind, z.reference, z.headers, z.terms, z.trace, nullif(z.story_now, '[]'), z.payload
        from told z
       where z.became in ('retried', 'lost', 'released') and v_kept and not q.keyed
       order by z.place
      returning pos, message_id, queue_id, lane, reference, terms
    ), renamed as (
      insert into posthaste.words (slot, message_id, pos, queue_id, lane, word)
      select a.pos >> 22 & 15, a.message_id, a.pos, a.queue_id, a.lane, w
        from again a cross join lateral unnest(posthaste.words_of(a.reference, a.terms)) w where num_nonnulls(a.reference, a.terms) > 0
    ), parks as (
      -- Not as a loose entry: messages of its key that are read meanwhile stay behind it.
      -- Claims hear of it by the event.
      insert into posthaste.parked (subscriber, key, ord, message_id, pos, lane, not_before, reason, created_at, attempt, failures, losses, losses_alone, ages_from,
                                    content_type, kind, reference, headers, terms, trace, story, payload)
      select c.reader >> 10, coalesce(z.key, ''), z.ord, z.message_id, z.pos, v_lane & 255, case when z.next > v_now then z.next end, z.became, z.created_at,
             least(z.attempt + (z.became <> 'released')::int, 32767), z.failures, least(z.losses, 32767), z.losses_alone, z.ages_from,
             z.content_type, z.kind, z.reference, z.headers, z.terms, z.trace, nullif(z.story_now, '[]'), z.payload
        from told z
       where z.became in ('retried', 'lost', 'released') and v_kept and q.keyed
    ), events as (
      select posthaste.lane_event(c.reader >> 10, v_lane & 255, jsonb_agg(x.event), x.at)
        from (select jsonb_build_object('key', coalesce(z.key, ''), 'ord', z.ord::text, 'id', z.message_id)
                     || case when z.aside then '{"token": true}'::jsonb else '{}' end as event, v_now as at
                from told z where z.became in ('retried', 'lost', 'released')
              union all
              select jsonb_build_object('key', coalesce(z.key, '')), z.next
                from told z where z.became in ('retried', 'lost', 'released') and z.next > v_now
              union all
              select jsonb_build_object('key', z.key, 'stop', z.message_id), v_now
                from told z where z.became = 'dead' and q.on_dead = 'stop' and z.key is not null) x
       where q.keyed and v_kept
       group by x.at
    ), letters as (
      insert into posthaste.dead_letter_entries (message_id, subscription, queue_id, lane, pos, ord, attempt, created_at, died_at,
                                                 content_type, key, kind, reference, headers, terms, trace, error, story, payload)
      select z.message_id, v_subscription, v_queue, case when q.keyed then v_lane & 255 when v_lane >= 4 * q.width then v_lane % q.width else v_lane end, z.pos, z.ord, z.attempt, z.created_at, v_now,
             z.content_type, z.key, z.kind, z.reference, z.headers, z.terms, z.trace, coalesce(z.error, 'failed'), z.story_now, z.payload
        from told z
       where z.became = 'dead' and v_kept
      on conflict (queue_id, message_id, subscription) do update
        set pos = excluded.pos, attempt = excluded.attempt, error = excluded.error, story = excluded.story, died_at = excluded.died_at
    )
    select z.place, z.became, case when z.became in ('retried', 'lost', 'released') then z.next end from told z
     where (select count(*) from events) >= 0; -- otherwise they would not be appended
  -- Sleeping workers must know the next due time.
  if p_outcomes && array['retried', 'lost', 'released', 'set_aside'] and not posthaste.no_wake() then
    perform posthaste.ring(v_queue);
  end if;
end $$;
