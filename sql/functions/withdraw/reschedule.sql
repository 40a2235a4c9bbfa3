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
  v_all boolean;
  v_head posthaste.head;
  v_from text[] := '{}';
  v_at timestamptz;
begin
  if reschedule.send_at is null or not isfinite(reschedule.send_at) or reschedule.send_at >= posthaste.last_time() then
    raise exception using errcode = 'PH400', column = 'send_at', message = 'send_at must be a time before the last day of the year 9999', hint = 'for example 2030-01-31T12:00:00Z';
  end if;
  -- A past time becomes now: the message's age counts from it.
  v_at := greatest(reschedule.send_at, clock_timestamp());
  for v in 
    select x.*, q.ordered,
           bool_and((x.h).for_subscription is null and x.waits and x.parked is null) over ()
           -- A subscription without a row may have handed it out long ago by a claim that was
           -- reclaimed: a new entry for all would deliver it again there.
           and not exists (select from posthaste.subscriptions s
                            where s.queue_id = (x.h).queue_id and s.dropped_at is null and s.number <> all (x.told)
                              and posthaste.is_for(s, null, (x.h).xid, (x.h).due_at, (x.h).kind, (x.h).headers)
                              and (select z.pos from posthaste.cancelled z where z.pos = (x.h).pos and z.subscriber = s.queue_id::bigint << 10 | s.number
                                    order by z.pos, z.subscriber limit 1) is null) as for_all
      from (select y.*, array_agg(y.subscription) over () as told from posthaste.hold_message(reschedule.message_id) y) x
      join posthaste.queue_settings q on q.id = (x.h).queue_id
  loop
    if v.ordered then
      raise exception using errcode = 'PH400', column = 'queue', message = 'a message of an ordered queue cannot be rescheduled: all later ones of its key would wait for it',
        hint = 'cancel it, and send another';
    end if;
    rescheduled := v.waits;
    subscription := v.name;
    state := v.state;
    if v.waits then
      v_all := v.for_all;
      v_head := v.h;
      v_from := v_from || v.name::text;
      if v.parked is not null then
        -- A parked message waits in its row.
        update posthaste.parked p
           set not_before = v_at, ages_from = v_at
         where p.message_id = reschedule.message_id and p.subscriber = ((v.h).queue_id::bigint << 10 | v.subscription);
        perform posthaste.lane_event((v.h).queue_id::bigint << 10 | v.subscription, v.parked, jsonb_build_array(jsonb_build_object('key', coalesce((v.h).key, ''))),
          v_at);
      else
        perform posthaste.withdraw(v.h, v.subscription, case when v_all then 'carried' else 'moved' end);
        if not v_all then
          perform posthaste.append_again(v.h, v_at, v.subscription);
        end if;
      end if;
      state := case when v.state = 'retrying' then v.state when reschedule.send_at > clock_timestamp() then 'scheduled' else 'ready' end;
    end if;
    return next;
  end loop;
  if v_from <> '{}' then
    if v_all then
      perform posthaste.append_again(v_head, v_at, null);
    end if;
    perform posthaste.ring(v_head.queue_id);
    insert into posthaste.action_records (by, action, message_id, queue_id, details)
    values (coalesce(reschedule.by, session_user), 'reschedule', reschedule.message_id, v_head.queue_id,
            jsonb_build_object('subscriptions', to_jsonb(v_from), 'send_at', reschedule.send_at));
  end if;
end $$;
