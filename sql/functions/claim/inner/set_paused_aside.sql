-- posthaste.set_paused_aside: returns the messages of paused kinds of a claim that was just
-- written to the lanes of their kinds, with the attempts that they have. Their places are settled
-- already. They took no token, and wake no worker, because no claim gets them.
-- Arguments: the claim; the kinds, which have lanes.
-- Inserts: outcomes, entries_other, words. Reads: queue_settings, entries.
create or replace function posthaste.set_paused_aside(c posthaste.claims, p_paused text[])
returns void language plpgsql volatile set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan as $$
declare
  v_now timestamptz := clock_timestamp();
begin
  with gone as (
    select d.*, 4 * q.width + array_position(q.kind_lanes, d.kind) - 1 as lane
      from posthaste.queue_settings q
     cross join lateral posthaste.deliveries_at(c, array(select g from generate_series(0, c.places - 1) g where get_bit(c.expired, g) = 1)) d
     where q.id = (c.reader >> 20)::int and d.kind = any (p_paused)
  ), outcome_rows as (
    insert into posthaste.outcomes (slot, claim, place, attempt, pos, message_id, reader, at, worker, due_at, outcome)
    select c.slot, c.id, g.place, g.attempt, g.pos, g.message_id, c.reader, v_now, c.holder, v_now, 'released' from gone g
  ), again as (
    insert into posthaste.entries_other (message_id, created_at, due_at, queue_id, lane, for_subscription, attempt, failures, losses, losses_alone, ages_from,
                                   content_type, key, kind, reference, headers, terms, trace, story, payload)
    select g.message_id, g.created_at, v_now, (c.reader >> 20)::int, g.lane, (c.reader >> 10) & 1023, g.attempt, g.failures, g.losses, g.losses_alone, g.ages_from,
           g.content_type, g.key, g.kind, g.reference, g.headers, g.terms, g.trace, g.story, g.payload
      from gone g order by g.place
    returning pos, message_id, queue_id, lane, reference, terms
  )
  insert into posthaste.words (slot, message_id, pos, queue_id, lane, word)
  select a.pos >> 22 & 15, a.message_id, a.pos, a.queue_id, a.lane, w
    from again a cross join lateral unnest(posthaste.words_of(a.reference, a.terms)) w where num_nonnulls(a.reference, a.terms) > 0;
end $$;
