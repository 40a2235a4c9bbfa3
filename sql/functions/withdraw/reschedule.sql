-- posthaste.reschedule: changes the due time of a message, or of its next attempt, for every
-- subscription that has not handed it out: withdraws it and appends it again with the new time
-- in one step.
-- Arguments: its id; the time, which means now if it is past; by: the actor.
-- Returns: per subscription whether it was in time, and the state.
-- Errors: PH404, PH400, PH503. Locks: the readers of its queue and lane.
-- Inserts: cancelled, claims, entries_other, words, action_records.
create or replace function posthaste.reschedule(message_id bigint, send_at timestamptz, by text default session_user)
returns table (subscription text, rescheduled boolean, state text)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
#variable_conflict use_column
declare
  v record;
  v_queue int;
  v_from text[] := '{}';
begin
  if reschedule.send_at is null or not isfinite(reschedule.send_at) or reschedule.send_at >= posthaste.last_time() then
    raise exception using errcode = 'PH400', column = 'send_at', message = 'send_at must be a time before the last day of the year 9999', hint = 'for example 2030-01-31T12:00:00Z';
  end if;
  -- A past time becomes now: the message's age counts from it.
  for v in select p.*, q.ordered from posthaste.put_again(reschedule.message_id, greatest(reschedule.send_at, clock_timestamp()), null) p join posthaste.queue_settings q on q.id = p.queue_id loop
    if v.ordered then
      raise exception using errcode = 'PH400', column = 'queue', message = 'a message of an ordered queue cannot be rescheduled: all later ones of its key would wait for it',
        hint = 'cancel it, and send another';
    end if;
    v_queue := v.queue_id;
    subscription := v.subscription;
    rescheduled := v.moved;
    state := v.state;
    if v.moved then
      v_from := v_from || v.subscription;
      state := case when v.state = 'retrying' then v.state when reschedule.send_at > clock_timestamp() then 'scheduled' else 'ready' end;
    end if;
    return next;
  end loop;
  if v_from <> '{}' then
    insert into posthaste.action_records (by, action, message_id, queue_id, details)
    values (coalesce(reschedule.by, session_user), 'reschedule', reschedule.message_id, v_queue,
            jsonb_build_object('subscriptions', to_jsonb(v_from), 'send_at', reschedule.send_at));
  end if;
end $$;
