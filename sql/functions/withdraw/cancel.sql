-- posthaste.cancel: withdraws a message from every subscription that has not handed it out,
-- including its retries. Exact: a message reported as cancelled is never handed out.
-- Arguments: its id; by: the actor to record.
-- Returns: for each subscription whether it was in time, and the state: cancelled, or the
-- state of the message. Idempotent.
-- Until the transaction ends no other session claims from the message's lane.
-- Errors: PH404, PH400, PH503. Locks: the readers of its queue and lane.
-- Inserts: cancelled, claims, action_records.
create or replace function posthaste.cancel(message_id bigint, by text default session_user)
returns table (subscription text, cancelled boolean, state text)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v record;
  v_queue int;
  v_from text[] := '{}';
begin
  for v in select * from posthaste.hold_message(cancel.message_id) loop
    v_queue := (v.h).queue_id;
    if v.waits then
      perform posthaste.withdraw(v.h, v.subscription, 'cancelled');
      v_from := v_from || v.name::text;
      v.state := 'cancelled';
    end if;
    subscription := v.name;
    cancelled := v.state = 'cancelled';
    state := v.state;
    return next;
  end loop;
  if v_from <> '{}' then
    insert into posthaste.action_records (by, action, message_id, queue_id, details)
    values (coalesce(cancel.by, session_user), 'cancel', cancel.message_id, v_queue, jsonb_build_object('subscriptions', to_jsonb(v_from)));
  end if;
end $$;
