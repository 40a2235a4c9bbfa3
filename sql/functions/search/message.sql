-- posthaste.message: the state and the full history of one message.
-- Arguments: its id. Returns: one row per subscription of its queue:
--   state      scheduled, ready, running, retrying, done, handed_out (at most
--              once), dead, discarded or cancelled
--   due_at     when it may be handed out next, if that is in the future
--   attempts   every attempt, oldest first: attempt, outcome, worker (absent if it was
--              received by SQL or HTTP), claimed_at, ended_at, duration_ms, error, receipt; no
--              outcome while it runs
--   payload    null if it was erased, or not retained
--   erased_at  when its content was erased
--   options    the message's own max_attempts, timeout and backoff, in the form of
--              posthaste.send; null if it has none, or is only in the history
--   version    of its content, for posthaste.update_message; null without a payload
-- Settled messages can be looked up as long as the ring has room and for the queue's
-- retention; dead letters until they are replayed or discarded.
-- Errors: PH404 if the message is unknown or its space was reclaimed; PH400.
-- Reads: entries, dead_letter_entries and the tables of message_rows.
create or replace function posthaste.message(message_id bigint)
returns setof posthaste.message_found
language plpgsql stable security definer rows 1
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off set max_parallel_workers_per_gather = 0 as $$
#variable_conflict use_column
declare
  v_id bigint := message.message_id;
  v_heads posthaste.head[];
begin
  if v_id is null then
    raise exception using errcode = 'PH400', column = 'id', message = 'id must not be null';
  end if;
  -- By BRIN; an index on pos would make every send too expensive.
  v_heads := array(select e.head from posthaste.entries e
                    where posthaste.slot_of(e.pos) = posthaste.slot_of(v_id) and e.pos = v_id and e.message_id is null)
          || posthaste.other_heads(array[v_id]);
  return query
    select s.message_id, q.name, s.subscription_name, s.state, s.due_at, s.key, s.kind, s.headers, s.reference, s.terms,
           s.content_type, coalesce(s.payload, p.payload), s.created_at, s.attempts, s.erased_at,
           posthaste.message_version(s.content_type, s.key, s.kind, s.headers, s.reference, s.terms, coalesce(s.payload, p.payload)),
           posthaste.kinds_option(jsonb_build_object('', p.options)) -> ''
      from posthaste.message_rows(v_heads, array[v_id]) s
      join posthaste.queue_settings q on q.id = s.queue_id and q.dropped_at is null
      left join lateral (
       select d.payload, d.headers -> '' as options from posthaste.dead_letter_entries d where d.message_id = s.message_id and d.subscription = s.subscription
       union all
       select k.payload, k.headers -> '' from posthaste.parked k where k.message_id = s.message_id and k.subscriber = (s.queue_id::bigint << 10 | s.subscription)
       union all
       select e.payload, e.headers -> '' from posthaste.entries e where posthaste.slot_of(e.pos) = posthaste.slot_of(s.payload_pos) and e.pos = s.payload_pos
       limit 1) p on s.payload_pos is not null;
  if not found then
    raise exception using errcode = 'PH404', column = 'id', message = format('message %s is unknown, or its space was reclaimed', v_id),
      hint = 'settled messages are kept as long as the ring has room or their queue''s retention, dead letters until they are replayed or discarded';
  end if;
end $$;
