-- posthaste.list_messages: messages with their states, newest first.
-- Arguments, null for any: in_queue, with_reference, with_term (one of its terms),
-- in_state (a message matches if some subscription has it so); before: only ids
-- below it, for paging; max: 1 to 1000 rows.
-- Returns: one row per message and subscription, as posthaste.message without
-- the payload.
-- By reference and term it uses their indexes, by state dead it reads the dead
-- letters. With any other state it looks at the 10,000 newest messages that
-- match the rest and no further, and says so in a notice: page on with before.
-- For clients that see no notices it is in the setting posthaste.list_before, too,
-- until the transaction ends; empty after a search that was not cut.
-- Errors: PH400, PH404 with the field.
create or replace function posthaste.list_messages(in_queue text default null, with_reference text default null, with_term text default null,
  in_state text default null, before bigint default null, max int default 100)
returns table (message_id bigint, queue text, subscription text, state text, due_at timestamptz, key text, kind text, headers jsonb,
  reference text, terms text[], content_type text, created_at timestamptz, attempts jsonb)
language plpgsql stable security definer rows 100
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off set max_parallel_workers_per_gather = 0 as $$
#variable_conflict use_column
declare
  v_queue text := list_messages.in_queue;
  v_reference text := nullif(list_messages.with_reference, '');
  v_term text := nullif(list_messages.with_term, '');
  v_state text := nullif(list_messages.in_state, '');
  v_before bigint := list_messages.before;
  v_left int := list_messages.max;
  v_page int;
  v_looked int := 0;
  v_queues int[];
  v_heads posthaste.head[];
  v_ids bigint[];
  v_found int;
begin
  perform set_config('posthaste.list_before', '', true);
  if v_left is null or v_left not between 1 and 1000 then
    raise exception using errcode = 'PH400', column = 'limit', message = format('at most 1 to 1000 messages can be listed at a time, and %s are wanted', v_left);
  end if;
  if v_state not in ('scheduled', 'ready', 'running', 'retrying', 'done', 'dead', 'discarded', 'cancelled') then
    raise exception using errcode = 'PH400', column = 'state', message = format('state %L is none', v_state),
      hint = 'scheduled, ready, running, retrying, done, dead, discarded or cancelled';
  end if;
  if nullif(v_queue, '') is not null then
    v_queues := array[(posthaste.find_subscription(v_queue, null)).queue_id];
  else
    v_queues := array(select q.id from posthaste.queue_settings q where q.dropped_at is null);
    v_queue := null;
  end if;
  while v_left > 0 and v_looked < 10000 loop
    v_page := case when v_state is null then v_left else 1000 end;
    if v_reference is not null or v_term is not null then
      v_heads := array(select h from posthaste.named_heads(v_queues, v_reference, v_term, v_before, v_page) h);
    elsif v_state = 'dead' then
      v_heads := array(select h from posthaste.dead_newest(v_queues, v_before, v_page) h);
    else
      v_heads := array(select h from posthaste.newest_heads(case when v_queue is not null then v_queues[1] end, v_before, v_page) h);
    end if;
    v_ids := array(select distinct x.message_id from unnest(v_heads) x order by 1);
    exit when v_ids = '{}';
    v_heads := v_heads || array(select h from posthaste.later_heads(v_ids) h) || array(select h from posthaste.dead_heads(v_ids) h);
    return query
      with states as materialized (
        select (m.h).*, m.subscription_name, m.state as now, m.due_at as next, m.attempts from posthaste.message_states(v_heads) m
      ), wanted as materialized (
        select distinct s.message_id from states s join posthaste.queue_settings q on q.id = s.queue_id and q.dropped_at is null
         where v_state is null or s.now = v_state order by s.message_id desc limit v_left
      )
      select s.message_id, q.name, s.subscription_name, s.now, s.next, s.key, s.kind, s.headers, s.reference, s.terms,
             coalesce(s.content_type, 'application/json'), s.created_at, s.attempts
        from wanted w
        join states s on s.message_id = w.message_id
        join posthaste.queue_settings q on q.id = s.queue_id
       order by s.message_id desc, s.subscription_name;
    -- Rows, not messages: with several subscriptions a page may end early, and
    -- never late.
    get diagnostics v_found = row_count;
    v_left := v_left - v_found;
    v_looked := v_looked + cardinality(v_ids);
    v_before := v_ids[1];
    exit when cardinality(v_ids) < v_page;
  end loop;
  if v_left > 0 and v_looked >= 10000 then
    perform set_config('posthaste.list_before', v_before::text, true);
    raise notice using message = format('looked at the %s newest messages only', v_looked), hint = format('page on with before => %s', v_before);
  end if;
end $$;
