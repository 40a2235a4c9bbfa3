-- posthaste.list_dead_letters: messages that failed for good, newest id first.
-- Arguments, null for any: in_queue; ids (at most 10,000); before: only ids below
-- it, for paging; max: 1 to 1000 messages.
-- Returns: one row per message and subscription, with payload and attempts.
-- Errors: PH400, PH404 with the field. Reads: dead_letter_entries.
create or replace function posthaste.list_dead_letters(in_queue text default null, ids bigint[] default null, before bigint default null, max int default 100)
returns table (message_id bigint, queue text, subscription text, key text, kind text, headers jsonb, reference text, terms text[],
  content_type text, payload bytea, created_at timestamptz, died_at timestamptz, error text, attempts jsonb)
language plpgsql stable security definer rows 100
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off set max_parallel_workers_per_gather = 0 as $$
#variable_conflict use_column
declare
  v_max int := list_dead_letters.max;
  v_before bigint := coalesce(list_dead_letters.before, 9223372036854775807);
  v_queues int[];
  v_ids bigint[];
begin
  if v_max is null or v_max not between 1 and 1000 then
    raise exception using errcode = 'PH400', column = 'limit', message = format('at most 1 to 1000 dead letters can be listed at a time, and %s are wanted', v_max);
  end if;
  if nullif(list_dead_letters.in_queue, '') is not null then
    v_queues := array[(posthaste.find_subscription(list_dead_letters.in_queue, null)).queue_id];
  else
    v_queues := array(select q.id from posthaste.queue_settings q where q.dropped_at is null);
  end if;
  if list_dead_letters.ids is not null then
    v_ids := array(select distinct d.message_id from posthaste.dead_letter_entries d
                    where d.message_id = any (posthaste.check_ids(list_dead_letters.ids)) and d.queue_id = any (v_queues) and d.message_id < v_before
                    order by 1 desc limit v_max);
  else
    v_ids := array(select distinct h.message_id from posthaste.dead_newest(v_queues, v_before, v_max) h);
  end if;
  return query
    select d.message_id, q.name, s.name, d.key, d.kind, d.headers, d.reference, d.terms, coalesce(d.content_type, 'application/json'),
           d.payload, d.created_at, d.died_at, d.error, d.story
      from posthaste.dead_letter_entries d
      join posthaste.queue_settings q on q.id = d.queue_id
      join posthaste.subscriptions s on s.queue_id = d.queue_id and s.number = d.subscription
     where d.message_id = any (v_ids) and d.queue_id = any (v_queues)
     order by d.message_id desc, d.subscription;
end $$;
