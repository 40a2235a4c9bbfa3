-- posthaste.cancel: withdraws a message from every subscription that has not handed it out,
-- including its retries, and asks the holders of those where it runs to stop. Exact: a message
-- reported as cancelled is never handed out, and one for which requested is true is not handed out
-- again.
-- Arguments: its id; by: the actor to record.
-- Returns: for each subscription whether it was cancelled before it was handed out; the state:
-- cancelled, or the state of the message; requested: it runs, its holder is told, and if that does
-- not finish it, it becomes cancelled. Idempotent.
-- Until the transaction ends no other session claims from the message's lane, and a failure of a
-- running delivery of it waits.
-- Errors: PH404, PH400, PH503. Locks: the readers of its queue and lane.
-- Inserts: cancelled, claims, notes, cancel_requests, action_records.
create or replace function posthaste.cancel(message_id bigint, by text default session_user)
returns table (subscription text, cancelled boolean, state text, requested boolean)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v record;
  v_queue int;
  v_names text[];
  v_states text[];
  v_withdrawn boolean[];
  v_requests boolean[];
  v_requested boolean;
  v_from text[] := '{}';
  v_running text[] := '{}';
begin
  loop
    v_names := '{}';
    v_states := '{}';
    v_withdrawn := '{}';
    v_requests := '{}';
    for v in select * from posthaste.hold_message(cancel.message_id) loop
      v_queue := (v.h).queue_id;
      v_requested := false;
      if v.waits then
        perform posthaste.withdraw(v.h, v.subscription, 'cancelled');
        v_from := v_from || v.name::text;
        v.state := 'cancelled';
      elsif v.state = 'running' then
        v_requested := posthaste.request_cancel(v.h, v.subscription);
        if v_requested then
          v_running := v_running || v.name::text;
        end if;
      end if;
      v_names := v_names || v.name::text;
      v_states := v_states || v.state::text;
      -- The end of a running delivery made it cancelled if its last attempt ended so.
      v_withdrawn := v_withdrawn || (v.waits or v.state = 'cancelled' and (
        select m.attempts -> -1 ->> 'outcome' from posthaste.message_states(array[v.h]) m where m.subscription = v.subscription) is distinct from 'cancelled');
      v_requests := v_requests || v_requested;
    end loop;
    -- A delivery that has ended meanwhile may have left a retry, which can be withdrawn.
    exit when array_position(v_requests, null) is null;
  end loop;
  return query
    select u.name, u.withdrawn, u.state, u.state = 'running'
      from (select * from unnest(v_names, v_withdrawn, v_states) with ordinality x (name, withdrawn, state, n)
            union all
            -- Withdrawn before, and not found again: a parked message whose entry was reclaimed.
            select x.name, true, 'cancelled', 0 from unnest(v_from) x (name) where x.name <> all (v_names)) u
     order by u.n;
  if v_from || v_running <> '{}' then
    insert into posthaste.action_records (by, action, message_id, queue_id, details)
    values (coalesce(cancel.by, session_user), 'cancel', cancel.message_id, v_queue,
            jsonb_build_object('subscriptions', to_jsonb(v_from)) || case when v_running = '{}' then '{}' else jsonb_build_object('running', to_jsonb(v_running)) end);
  end if;
end $$;
