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
create or replace function posthaste.finish(p_claim posthaste.claims, p_places int[], p_outcomes text[], p_errors text[],
  p_waits double precision[] default '{}', p_receipts jsonb[] default '{}', p_durations real[] default '{}', p_terms jsonb[] default '{}',
  p_noted boolean default true)
returns table (place int, outcome text, due_at timestamptz)
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_queue int := p_claim.reader >> 20;
  v_subscription smallint := (p_claim.reader >> 10) & 1023;
  v_lane smallint := (p_claim.reader >> 1) & 511;
  v_settings posthaste.queue_settings;
  v_now timestamptz := clock_timestamp();
  -- False for a dropped subscription, so also for a dropped queue.
  v_kept boolean := coalesce((select subscription.dropped_at is null from posthaste.subscriptions subscription where subscription.queue_id = v_queue and subscription.number = v_subscription), false);
  v_worker text := (select registration.name from posthaste.registrations registration where registration.id = p_claim.holder);
begin
  -- Its slice is read by the claim's snapshots.
  perform posthaste.refuse_copy();
  select * into v_settings from posthaste.queue_settings where id = v_queue;
  if v_settings.rate is not null and 'set_aside' = any (p_outcomes) then
    insert into posthaste.limit_refunds (subscriber, tokens) values (p_claim.reader >> 10, cardinality(array_positions(p_outcomes, 'set_aside')));
  end if;
  if not v_settings.keyed and 'set_aside' = any (p_outcomes) then
    v_settings := posthaste.aside_lanes(v_queue, array(
      select distinct coalesce(delivery.kind, '')
        from posthaste.deliveries_at(p_claim, array(select given.place from unnest(p_places, p_outcomes) given (place, wanted) where given.wanted = 'set_aside')) delivery));
  elsif not v_settings.keyed and v_lane >= 4 * v_settings.width then
    -- It fails in the lane of its kind, and comes back there.
    v_settings := posthaste.aside_lanes(v_queue, v_settings.kind_lanes[v_lane - 4 * v_settings.width + 1:v_lane - 4 * v_settings.width + 1]);
  end if;
  return query
    with asked as (
      select given.place, case when given.wanted = 'set_aside' then 'released' else given.wanted end as wanted, given.wanted = 'set_aside' as aside, given.error, given.wait, given.receipt, given.duration, case when given.found is not null then array(select jsonb_array_elements_text(given.found)) end as found
        from unnest(p_places, p_outcomes, p_errors, p_waits, p_receipts, p_durations, p_terms) given (place, wanted, error, wait, receipt, duration, found)
    ), noted as (
      select asked.*, case when p_noted and asked.wanted <> 'done' then posthaste.notes_of(p_claim.slot, p_claim.id, asked.place) end as notes from asked
    ), counted as (
      select noted.*, delivery.pos, delivery.message_id, delivery.created_at, delivery.attempt, delivery.content_type, delivery.key, delivery.kind, delivery.reference, delivery.headers,
             coalesce(delivery.terms, noted.found) as terms, delivery.terms is null as unnamed, delivery.trace, delivery.story, delivery.payload, delivery.ord,
             delivery.failures + (noted.wanted in ('retried', 'dead'))::int as failures,
             delivery.losses + loss.counts::int as losses, delivery.losses_alone + (loss.counts and p_claim.alone)::int as losses_alone, delivery.ages_from
        from noted
        join posthaste.deliveries_at(p_claim, p_places) delivery on delivery.place = noted.place
       cross join lateral (select noted.wanted = 'lost' and (noted.notes ? 'checkpoint' and noted.notes -> 'checkpoint' is distinct from delivery.story -> -1 -> 'checkpoint') is not true as counts) loss
    ), decided as (
      select counted.*, coalesce(case when counted.aside then aside_lane.lane end, v_lane) as lane,
             case when counted.notes ? 'cancel_requested_at' then 'cancelled'
                  when counted.wanted in ('retried', 'lost') and counted.failures + counted.losses_alone >= options.most then 'dead' else counted.wanted end as became,
             -- The handler's values are recorded, whatever they are.
             least(posthaste.last_time() - interval '1 second', v_now + make_interval(secs => greatest(0, least(9e12, case counted.wanted
               when 'retried' then coalesce(counted.wait,
                 random() * least(options.max, options.base * 2 ^ least(counted.failures - 1, 60)))
               when 'released' then case when not counted.aside then coalesce(counted.wait, 0) when aside_lane.lane is null then 1 else 0 end
               else 0
             end)))) as next
        from counted
       cross join lateral posthaste.attempt_options(counted.headers, counted.kind, v_settings) options
       cross join lateral (
         select case when not v_settings.keyed and coalesce(counted.kind, '') = any (v_settings.kinds_aside) then 4 * v_settings.width + array_position(v_settings.kind_lanes, coalesce(counted.kind, '')) - 1 end as lane) aside_lane
    ), told as (
      select decided.*,
             case when decided.wanted = 'released' and decided.notes is null then coalesce(decided.story, '[]')
                  else posthaste.story_add(decided.story, jsonb_strip_nulls(jsonb_build_object(
                         'attempt', decided.attempt, 'outcome', case when decided.wanted = 'lost' then 'lost' else decided.became end, 'worker', v_worker,
                         'claimed_at', p_claim.at, 'ended_at', v_now, 'duration_ms', decided.duration, 'error', decided.error))
                         -- Nulls inside a receipt or a checkpoint are kept.
                         || case when decided.receipt is null then '{}' else jsonb_build_object('receipt', decided.receipt) end || coalesce(decided.notes, '{}'))
             end as story_now
        from decided
    ), outcome_rows as (
      insert into posthaste.outcomes (slot, claim, place, attempt, pos, message_id, reader, at, worker, duration, due_at, outcome, error, receipt, terms)
      select p_claim.slot, p_claim.id, told.place, told.attempt, told.pos, told.message_id, p_claim.reader, v_now, p_claim.holder, told.duration,
             case when told.became in ('retried', 'lost', 'released') then told.next end, told.became, told.error, told.receipt,
             -- If the message continues, its next entry has them.
             case when told.unnamed and told.became in ('done', 'dead', 'cancelled') then told.terms end
        from told
    ), named as (
      insert into posthaste.words (slot, message_id, pos, queue_id, lane, word)
      select p_claim.slot, told.message_id, told.pos, v_queue, v_lane, word
        from told cross join lateral unnest(posthaste.words_of(null, told.terms)) word
       where told.unnamed and told.became in ('done', 'dead', 'cancelled')
    ), again as (
      insert into posthaste.entries_other (message_id, created_at, due_at, queue_id, lane, for_subscription, attempt, failures, losses, losses_alone, ages_from,
                                     content_type, key, kind, reference, headers, terms, trace, story, payload)
      select told.message_id, told.created_at, told.next, v_queue, told.lane, v_subscription,
             least(told.attempt + (told.became <> 'released')::int, 32767), told.failures, least(told.losses, 32767), told.losses_alone, told.ages_from,
             told.content_type, told.key, told.kind, told.reference, told.headers, told.terms, told.trace, nullif(told.story_now, '[]'), told.payload
        from told
       where told.became in ('retried', 'lost', 'released') and v_kept and not v_settings.keyed
       order by told.place
      returning pos, message_id, queue_id, lane, reference, terms
    ), renamed as (
      insert into posthaste.words (slot, message_id, pos, queue_id, lane, word)
      select again.pos >> 22 & 15, again.message_id, again.pos, again.queue_id, again.lane, word
        from again cross join lateral unnest(posthaste.words_of(again.reference, again.terms)) word where num_nonnulls(again.reference, again.terms) > 0
    ), parks as (
      -- Not as a loose entry: messages of its key that are read meanwhile stay behind it.
      -- Claims hear of it by the event.
      insert into posthaste.parked (subscriber, key, ord, message_id, pos, lane, not_before, reason, created_at, attempt, failures, losses, losses_alone, ages_from,
                                    content_type, kind, reference, headers, terms, trace, story, payload)
      select p_claim.reader >> 10, coalesce(told.key, ''), told.ord, told.message_id, told.pos, v_lane & 255, case when told.next > v_now then told.next end, told.became, told.created_at,
             least(told.attempt + (told.became <> 'released')::int, 32767), told.failures, least(told.losses, 32767), told.losses_alone, told.ages_from,
             told.content_type, told.kind, told.reference, told.headers, told.terms, told.trace, nullif(told.story_now, '[]'), told.payload
        from told
       where told.became in ('retried', 'lost', 'released') and v_kept and v_settings.keyed
    ), events as (
      select posthaste.lane_event(p_claim.reader >> 10, v_lane & 255, jsonb_agg(lane_events.event), lane_events.at)
        from (select jsonb_build_object('key', coalesce(told.key, ''), 'ord', told.ord::text, 'id', told.message_id)
                     || case when told.aside then '{"token": true}'::jsonb else '{}' end as event, v_now as at
                from told where told.became in ('retried', 'lost', 'released')
              union all
              select jsonb_build_object('key', coalesce(told.key, '')), told.next
                from told where told.became in ('retried', 'lost', 'released') and told.next > v_now
              union all
              select jsonb_build_object('key', told.key, 'stop', told.message_id), v_now
                from told where told.became = 'dead' and v_settings.on_dead = 'stop' and told.key is not null) lane_events
       where v_settings.keyed and v_kept
       group by lane_events.at
    ), letters as (
      insert into posthaste.dead_letter_entries (message_id, subscription, queue_id, lane, pos, ord, attempt, created_at, died_at,
                                                 content_type, key, kind, reference, headers, terms, trace, error, story, payload)
      select told.message_id, v_subscription, v_queue, case when v_settings.keyed then v_lane & 255 when v_lane >= 4 * v_settings.width then v_lane % v_settings.width else v_lane end, told.pos, told.ord, told.attempt, told.created_at, v_now,
             told.content_type, told.key, told.kind, told.reference, told.headers, told.terms, told.trace, coalesce(told.error, 'failed'), told.story_now, told.payload
        from told
       where told.became = 'dead' and v_kept
      on conflict (queue_id, message_id, subscription) do update
        set pos = excluded.pos, attempt = excluded.attempt, error = excluded.error, story = excluded.story, died_at = excluded.died_at
    )
    select told.place, told.became, case when told.became in ('retried', 'lost', 'released') then told.next end from told
     where (select count(*) from events) >= 0; -- otherwise they would not be appended
  -- Sleeping workers must know the next due time.
  if p_outcomes && array['retried', 'lost', 'released', 'set_aside'] and not posthaste.no_wake() then
    perform posthaste.ring(v_queue);
  end if;
end $$;
