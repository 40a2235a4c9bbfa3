-- posthaste.pause_kind: pauses one kind of messages of a queue: later claims and receives set its
-- messages aside, in the lane of the kind, and hand out none of them. Messages handed out before
-- can be settled, and senders are not affected. For every subscription.
-- Arguments: the queue's name, which must not be keyed; the kind; by: the actor to record;
-- reason and until as of set_pause.
-- Returns: whether it changed anything. Errors: PH404; PH400 and PH413 of the kind; those of set_pause; PH501 if the
-- queue is keyed, whose kinds have no lanes, or has no lane left; PH503, naming the transaction
-- that changes the queue. Locks: the queue's settings. Updates: queue_settings. Writes as
-- set_pause.
create or replace function posthaste.pause_kind(queue text, kind text, by text default session_user, reason text default null, until timestamptz default null)
returns boolean language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  q posthaste.queue_settings := posthaste.kind_settings(pause_kind.queue, pause_kind.kind);
  v_kind text := pause_kind.kind;
begin
  if q.keyed then
    raise exception using errcode = 'PH501', column = 'queue',
      message = format('queue %L hands out messages by their keys, so that a kind of it cannot be paused', pause_kind.queue),
      hint = 'pause the queue, or one of its keys';
  elsif v_kind = any (q.kinds_paused) then
    return posthaste.set_pause('kind', q.id, v_kind, pause_kind.by, pause_kind.reason, pause_kind.until);
  elsif cardinality(q.kinds_paused) >= 100 then
    raise exception using errcode = 'PH501', column = 'kind', message = format('at most 100 kinds of queue %L can be paused', pause_kind.queue);
  elsif v_kind <> all (q.kind_lanes) and 4 * q.width + cardinality(q.kind_lanes) >= 256 then
    raise exception using errcode = 'PH501', column = 'kind',
      message = format('queue %L sets messages of %s kinds aside, which is the maximum', pause_kind.queue, cardinality(q.kind_lanes));
  end if;
  -- Here, so that no claim has to change the settings.
  q.kind_lanes := case when v_kind = any (q.kind_lanes) then q.kind_lanes else q.kind_lanes || v_kind end;
  update posthaste.queue_settings x
     set kinds_paused = x.kinds_paused || v_kind, kind_lanes = q.kind_lanes, lanes = greatest(x.lanes, 4 * x.width + cardinality(q.kind_lanes)),
         kinds_aside = case when v_kind = any (x.kinds_aside) then x.kinds_aside else x.kinds_aside || v_kind end
   where x.id = q.id;
  return posthaste.set_pause('kind', q.id, v_kind, pause_kind.by, pause_kind.reason, pause_kind.until);
end $$;
