-- posthaste.list_messages: messages with their states, newest first.
-- Arguments, null for any and never empty: queue, reference, term (one of its
-- terms), state (a message matches if some subscription has it in this state); before: only
-- ids below it, for paging; max: 1 to 1000 rows; key; kind; created_from: only messages that
-- were sent then or later.
-- Returns: one row per message and subscription, as posthaste.message without the payload, and
-- without checkpoints and logs of attempts.
-- Erased messages are found only by their queue, id and state.
-- By reference and term it uses their indexes. By state dead it reads the dead letters, by state
-- retrying the messages with earlier attempts. By key it also reads the history.
-- By any other state, by kind and by created_from it looks at the newest messages that match the rest, up to 3,000
-- deliveries; by key, at up to 500,000 positions of the ring and 10,000 parked messages. If it
-- stops there it says so in a notice: continue with before.
-- For clients that see no notices the setting posthaste.list_before has the id to continue with
-- until the transaction ends; it is empty after a complete search.
-- Errors: PH400, PH404 with the field.
create or replace function posthaste.list_messages(queue text default null, reference text default null, term text default null,
  state text default null, before bigint default null, max bigint default 100, key text default null, kind text default null, created_from timestamptz default null)
returns setof posthaste.message_listed
language plpgsql stable security definer rows 100
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off set max_parallel_workers_per_gather = 0 as $$
#variable_conflict use_column
declare
  v_queue text := list_messages.queue;
  v_reference text := list_messages.reference;
  v_term text := list_messages.term;
  v_key text := list_messages.key;
  v_kind text := list_messages.kind;
  v_from timestamptz := list_messages.created_from;
  v_state text := list_messages.state;
  v_before bigint := list_messages.before;
  v_left int := case when list_messages.max between 1 and 1000 then list_messages.max end;
  v_page int;
  v_looked int := 0;
  v_copies int;
  v_queues int[];
  v_heads posthaste.head[];
  v_ids bigint[];
  v_more bigint[];
  v_bottom bigint;
  v_cut boolean := false;
  v_found int;
  v_empty int;
  v_bad text;
  v record;
begin
  perform set_config('posthaste.list_before', '', true);
  if v_left is null then
    raise exception using errcode = 'PH400', column = 'limit', message = format('a call lists 1 to 1000 messages, not %s', list_messages.max);
  end if;
  v_empty := array_position(array[v_queue, v_reference, v_term, v_key, v_kind], '');
  if v_empty is not null then
    v_bad := (array['queue', 'reference', 'term', 'key', 'kind'])[v_empty];
    raise exception using errcode = 'PH400', column = v_bad, message = format('%s to search by must not be empty', v_bad), hint = 'null means any';
  end if;
  if v_state not in ('scheduled', 'ready', 'running', 'retrying', 'done', 'handed_out', 'dead', 'discarded', 'cancelled', 'expired') then
    raise exception using errcode = 'PH400', column = 'state', message = format('unknown state %L', v_state),
      hint = 'expected one of scheduled, ready, running, retrying, done, handed_out, dead, discarded, cancelled, expired';
  end if;
  if v_queue is not null then
    v_queues := array[posthaste.find_queue(v_queue)];
  else
    v_queues := array(select q.id from posthaste.queue_settings q where q.dropped_at is null);
  end if;
  v_copies := coalesce((select max(x.n) from (select count(*) as n from posthaste.subscriptions s
                                               where s.queue_id = any (v_queues) and s.dropped_at is null group by s.queue_id) x), 1);
  while v_left > 0 and v_looked < 3000 and not v_cut loop
    v_page := case when v_state is null and v_kind is null and v_from is null and (v_key is null or v_reference is null and v_term is null) then v_left else 1000 end;
    -- v_bottom is the id down to which everything was seen; null is to the end.
    v_bottom := null;
    v_heads := '{}';
    v_more := '{}'; -- messages that the ring may have reclaimed
    if v_reference is not null or v_term is not null then
      v_heads := array(select h from posthaste.named_heads(v_queues, v_reference, v_term, v_before, v_page) h);
    else
      if v_state is distinct from 'dead' then
        if v_key is not null then
          v := posthaste.key_heads(v_queues, v_key, v_before, v_page);
          v_heads := v.heads;
          v_bottom := v.cut_at;
        elsif v_state = 'retrying' then
          v := posthaste.later_newest(v_queues, v_before, v_page);
          v_more := v.message_ids;
          v_bottom := v.cut_at;
        else
          v_heads := array(select h from posthaste.newest_heads(case when v_queue is not null then v_queues[1] end, v_before, v_page) h);
        end if;
        v := posthaste.parked_newest(v_queues, v_key, v_before, v_page);
        v_more := v_more || v.message_ids;
        v_bottom := greatest(v_bottom, v.cut_at, case when v_key is not null then v.message_ids[v_page] end);
      end if;
      if v_state is null or v_state = 'dead' or v_key is not null then
        select * into v from posthaste.dead_found(row(case when v_queue is not null then v_queues[1] end, null, null, v_key, null, null, null, null, null)::posthaste.dead_filter, null, v_before, v_page);
        v_more := v_more || v.message_ids;
        v_bottom := greatest(v_bottom, v.cut_at, case when v_key is not null then v.message_ids[v_page] end);
      end if;
      v_cut := v_bottom is not null;
    end if;
    v_ids := array(select distinct x from unnest(v_more || array(select h.message_id from unnest(v_heads) h)) x order by x desc);
    if cardinality(v_ids) >= v_page then
      v_bottom := greatest(v_bottom, v_ids[v_page]);
    end if;
    v_more := case when v_state in ('scheduled', 'ready', 'running', 'retrying', 'dead') then '{}'
                   else posthaste.history_ids(v_queues, v_reference, v_key, v_term, v_before, v_page) end;
    if cardinality(v_more) >= v_page then
      v_bottom := greatest(v_bottom, v_more[v_page]);
    end if;
    v_ids := array(select distinct x from unnest(v_ids || v_more) x where x >= coalesce(v_bottom, 0) order by x);
    -- Erased messages are not found by their content.
    if v_reference is not null or v_term is not null or v_key is not null then
      v_more := array(select e.message_id from posthaste.erased e where e.message_id = any (v_ids));
    else
      v_more := '{}';
    end if;
    if v_key is not null and (v_reference is not null or v_term is not null) then
      v_heads := array(select x from unnest(v_heads) x where x.key = v_key);
    end if;
    v_looked := v_looked + cardinality(v_ids) * v_copies;
    v_heads := array(select x from unnest(v_heads) x where x.message_id = any (v_ids)) || posthaste.other_heads(v_ids);
    return query
      with states as materialized (
        select m.* from posthaste.message_rows(v_heads, v_ids) m where (v_key is null or m.key = v_key) and m.message_id <> all (v_more)
      ), wanted as materialized (
        select distinct s.message_id from states s join posthaste.queue_settings q on q.id = s.queue_id and q.dropped_at is null
         where (v_state is null or s.state = v_state) and (v_kind is null or s.kind = v_kind) and (v_from is null or s.created_at >= v_from) order by s.message_id desc limit v_left
      )
      select s.message_id, q.name, s.subscription_name, s.state, s.due_at, s.key, s.kind, s.headers, s.reference, s.terms,
             s.content_type, s.created_at, posthaste.brief_story(s.attempts), s.erased_at
        from wanted w
        join states s on s.message_id = w.message_id
        join posthaste.queue_settings q on q.id = s.queue_id
       order by s.message_id desc, s.subscription_name;
    -- Rows, not messages: with several subscriptions a page may end early, and never late.
    get diagnostics v_found = row_count;
    v_left := v_left - v_found;
    v_before := v_bottom;
    exit when v_bottom is null;
  end loop;
  if v_left > 0 and v_bottom is not null then
    perform set_config('posthaste.list_before', v_before::text, true);
    raise notice using message = format('the search stopped at message %s', v_before), hint = format('continue with before => %s', v_before);
  end if;
end $$;
