-- posthaste.run_message: makes a message, or its next attempt, due now for every subscription
-- that has not handed it out. The queue's pause, its limits and its order still hold.
-- Arguments: its id; by: the actor to record.
-- Returns: per subscription whether it waits and is due now; its state; and what may still hold
-- it: paused, key_paused, kind_paused, set_aside (messages of its kind wait because no running
-- worker has said that it handles the kind), order (an earlier message of its key), concurrency,
-- rate_limit, key_concurrency, key_rate_limit.
-- Errors: as posthaste.reschedule. Locks, inserts: as posthaste.put_again; action_records.
create or replace function posthaste.run_message(message_id bigint, by text default session_user)
returns table (subscription text, due boolean, state text, held_by text[])
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
#variable_conflict use_column
declare
  v record;
  q posthaste.queue_settings;
  v_from text[] := '{}';
begin
  -- A message that is due already keeps its place.
  v_from := array(select h.name from posthaste.hold_message(run_message.message_id) h where h.waits and (h.h).due_at > clock_timestamp() order by h.name);
  if v_from <> '{}' then
    perform from posthaste.put_again(run_message.message_id, clock_timestamp(), null);
  end if;
  for v in select * from posthaste.hold_message(run_message.message_id) loop
    select * into q from posthaste.queue_settings s where s.id = (v.h).queue_id;
    subscription := v.name;
    due := v.waits;
    state := v.state;
    held_by := '{}';
    if v.waits then
      held_by := array_remove(array[
        case when q.paused_at is not null then 'paused' end,
        case when q.keyed and exists (select from posthaste.keys k where k.subscriber = q.id::bigint << 10 | v.subscription and k.key = coalesce((v.h).key, '') and k.paused_at is not null) then 'key_paused' end,
        case when (v.h).kind = any (q.kinds_paused) then 'kind_paused' end,
        case when exists (select from posthaste.set_aside() a where a.queue_id = q.id and a.subscription = v.subscription and a.kind = coalesce((v.h).kind, '')
                             and not a.known and not a.paused) then 'set_aside' end,
        case when q.ordered then 'order' end,
        case when q.concurrency is not null then 'concurrency' end,
        case when q.rate is not null then 'rate_limit' end,
        case when q.key_concurrency is not null then 'key_concurrency' end,
        case when q.key_rate is not null then 'key_rate_limit' end], null);
    end if;
    return next;
  end loop;
  if v_from <> '{}' then
    insert into posthaste.action_records (by, action, message_id, queue_id, details)
    values (coalesce(run_message.by, session_user), 'run', run_message.message_id, q.id, jsonb_build_object('subscriptions', to_jsonb(v_from)));
  end if;
end $$;
