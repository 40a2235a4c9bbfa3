-- posthaste.rewrite: replaces the content of a waiting message that was handed to no
-- subscription, in one step for all of them. It keeps its id and the time when it was sent.
-- Arguments: its id; the new content, with its lane; the new due time, null to keep it; how many
-- seconds after it was sent it is due at the latest, null for any.
-- Returns: null if the content was replaced; else the name of the first subscription that
-- prevents it, and the message's state there.
-- Errors: as posthaste.hold_message; PH400 if the queue is ordered, PH409 if the new content is
-- for other subscriptions, or has another key in a keyed queue.
-- Locks, inserts: as posthaste.put_again.
create or replace function posthaste.rewrite(p_id bigint, p_content posthaste.entries_other, p_due timestamptz, p_most double precision,
  out subscription text, out state text)
language plpgsql volatile set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
declare
  v record;
  v_head posthaste.head;
begin
  for v in select m.*, q.ordered, q.keyed from posthaste.hold_message(p_id) m join posthaste.queue_settings q on q.id = (m.h).queue_id loop
    if v.ordered then
      raise exception using errcode = 'PH400', column = 'queue', message = 'a message of an ordered queue cannot be replaced or edited, because it would lose its place in the order of its key',
        hint = 'cancel it, and send another';
    elsif v.keyed and (v.h).key is distinct from p_content.key then
      raise exception using errcode = 'PH409', column = 'key', message = format('message %s has the key %L, and that of a message in a queue that looks at keys cannot be changed to %L', p_id, (v.h).key, p_content.key),
        hint = 'cancel it, and send another';
    end if;
    -- One that was replayed was handed out before.
    if state is null and (v.state not in ('scheduled', 'ready', 'cancelled', 'expired') or v.waits and (v.h).attempt > 1) then
      subscription := v.name;
      state := v.state;
    end if;
    if v.waits then
      v_head := v.h;
    end if;
  end loop;
  if state is null and v_head.message_id is null then
    subscription := v.name;
    state := v.state;
  end if;
  -- One without a row was handed it long ago, by a claim that was reclaimed.
  if state is null and v_head.for_subscription is null then
    select s.name, 'done' into subscription, state from posthaste.handed_long_ago(v_head, null) n join posthaste.subscriptions s on s.queue_id = v_head.queue_id and s.number = n limit 1;
  end if;
  if state is not null then
    return;
  end if;
  for v in select s.name from posthaste.subscriptions s
            where s.queue_id = v_head.queue_id and s.dropped_at is null and s.filter is not null
              and posthaste.passes(s.filter, p_content.kind, posthaste.all_headers(p_content.headers, p_content.trace)) <> posthaste.passes(s.filter, v_head.kind, v_head.headers) loop
    raise exception using errcode = 'PH409', column = 'kind', message = format('the new kind or headers of message %s would change whether subscription %L gets it', p_id, v.name),
      hint = 'cancel it, and send another';
  end loop;
  perform from posthaste.put_again(p_id,
    case when p_most is null then p_due else greatest(clock_timestamp(), least(p_due, v_head.created_at + make_interval(secs => p_most))) end, p_content);
end $$;
