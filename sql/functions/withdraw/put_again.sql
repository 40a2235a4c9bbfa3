-- posthaste.put_again: withdraws a message, or its next attempt, from every subscription that
-- has not handed it out, and appends it again with another due time or content, in one step.
-- Arguments: its id; the due time, null to keep it; its new content, null to keep it.
-- Returns: per subscription whether it was in time, and the state before.
-- Errors: as posthaste.hold_message. Locks: the readers of its queue and lane.
-- Inserts: cancelled, claims, entries_other, words. Updates: parked.
create or replace function posthaste.put_again(p_id bigint, p_due timestamptz, p_content posthaste.entries_other)
returns table (subscription text, moved boolean, state text, queue_id int)
language plpgsql volatile set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
#variable_conflict use_column
declare
  v record;
  v_all boolean;
  v_head posthaste.head;
begin
  for v in
    select x.*,
           bool_and((x.h).for_subscription is null and x.waits and x.parked is null) over ()
           -- A new entry for all would deliver it again to one that has no row.
           and not exists (select from posthaste.handed_long_ago(x.h, x.told)) as for_all
      from (select y.*, array_agg(y.subscription) over () as told from posthaste.hold_message(p_id) y) x
  loop
    subscription := v.name;
    moved := v.waits;
    state := v.state;
    queue_id := (v.h).queue_id;
    if v.waits then
      v_all := v.for_all;
      v_head := v.h;
      if v.parked is not null then
        -- A parked message waits in its row.
        update posthaste.parked p
           set not_before = coalesce(p_due, p.not_before),
               ages_from = coalesce(p_due, p.ages_from)
         where p.message_id = p_id and p.subscriber = ((v.h).queue_id::bigint << 10 | v.subscription);
        if p_content.payload is not null then
          update posthaste.parked p
             set content_type = p_content.content_type, kind = p_content.kind, reference = p_content.reference, headers = posthaste.options_kept(p_content.headers, p.headers),
                 terms = p_content.terms, trace = p_content.trace, payload = p_content.payload
           where p.message_id = p_id and p.subscriber = ((v.h).queue_id::bigint << 10 | v.subscription);
        end if;
        perform posthaste.lane_event((v.h).queue_id::bigint << 10 | v.subscription, v.parked, jsonb_build_array(jsonb_build_object('key', coalesce((v.h).key, ''))),
          coalesce(p_due, clock_timestamp()));
      else
        perform posthaste.withdraw(v.h, v.subscription, case when v_all then 'carried' else 'moved' end);
        if not v_all then
          perform posthaste.append_again(v.h, p_due, v.subscription, p_content);
        end if;
      end if;
    end if;
    return next;
  end loop;
  if v_all then
    perform posthaste.append_again(v_head, p_due, null, p_content);
  end if;
  if v_head.message_id is not null then
    perform posthaste.ring(v_head.queue_id);
  end if;
end $$;
