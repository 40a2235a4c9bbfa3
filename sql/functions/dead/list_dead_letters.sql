-- posthaste.list_dead_letters: messages that failed permanently, newest id first.
-- Arguments: filter as posthaste.dead_filter, null for any; message_ids (at most 10,000); before: only
-- ids below it, for paging; max: 1 to 1000 messages.
-- Returns: one row per message and subscription, with payload and attempts.
-- It looks at 10,000 letters of its index and stops. It reports that as
-- posthaste.list_messages does: in a notice and in posthaste.list_before.
-- Errors: PH400, PH404 with the field. Reads: dead_letter_entries.
create or replace function posthaste.list_dead_letters(filter anycompatible default null::text, message_ids bigint[] default null, before bigint default null, max bigint default 100)
returns table (message_id bigint, queue text, subscription text, key text, kind text, headers jsonb, reference text, terms text[],
  content_type text, payload bytea, created_at timestamptz, died_at timestamptz, error text, attempts jsonb, erased_at timestamptz)
language plpgsql stable security definer rows 100
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off set max_parallel_workers_per_gather = 0 as $$
#variable_conflict use_column
declare
  v_max int := case when list_dead_letters.max between 1 and 1000 then list_dead_letters.max end;
  v_filter jsonb := posthaste.json_argument(list_dead_letters.filter, 'filter');
  f posthaste.dead_filter := posthaste.dead_filter(v_filter);
  v record;
begin
  perform set_config('posthaste.list_before', '', true);
  if v_max is null then
    raise exception using errcode = 'PH400', column = 'limit', message = format('a call lists 1 to 1000 dead letters, not %s', list_dead_letters.max);
  end if;
  v := posthaste.dead_found(f, case when list_dead_letters.message_ids is not null then posthaste.check_ids(list_dead_letters.message_ids) end, list_dead_letters.before, v_max);
  return query
    select d.message_id, q.name, s.name, d.key, d.kind, posthaste.all_headers(d.headers, d.trace), d.reference, d.terms, coalesce(d.content_type, 'application/json'),
           d.payload, d.created_at, d.died_at, d.error, d.story, d.erased_at
      from unnest(v.message_ids) i (id)
      -- Ordered: otherwise the choice of the plan is left to chance.
     cross join lateral (select * from posthaste.dead_letter_entries x where x.message_id = i.id and posthaste.dead_matches(x, f) order by x.message_id) d
      join posthaste.queue_settings q on q.id = d.queue_id
      join posthaste.subscriptions s on s.queue_id = d.queue_id and s.number = d.subscription
     order by d.message_id desc, d.subscription;
  if v.cut_at is not null then
    perform set_config('posthaste.list_before', v.cut_at::text, true);
    raise notice using message = 'the search stopped after 10,000 dead letters', hint = format('continue with before => %s', v.cut_at);
  end if;
end $$;
