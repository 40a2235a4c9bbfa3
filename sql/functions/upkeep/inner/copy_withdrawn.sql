-- posthaste.copy_withdrawn: copies messages of a slot that were withdrawn before they were
-- handed out to the history, up to a maximum.
-- Arguments: slot, the maximum. Returns: the number of copied messages; less than the maximum
-- when none is left. Copied rows are marked, and not copied again.
-- Updates: cancelled. Inserts: history.
create or replace function posthaste.copy_withdrawn(p_slot int, p_max int)
returns int language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
declare
  v_epoch bigint := -1;
  v_copied int := 0;
  x record;
begin
  loop
    -- There are rows of few revolutions.
    select k.pos >> 22 into v_epoch from posthaste.cancelled k where k.pos >= (v_epoch + 1) << 22 order by k.pos limit 1;
    exit when v_epoch is null;
    continue when v_epoch & 15 <> p_slot;
    for x in
      select k.pos, k.subscriber, k.outcome, k.at, e.message_id, e.created_at, e.content_type, e.key, e.kind, e.reference, posthaste.all_headers(e.headers, e.trace) as headers, e.terms, e.story,
             case when q.retain_payload then e.payload end as payload, q.id as queue, q.retention, z.at as erased
        from posthaste.cancelled k
       cross join lateral (select e.* from posthaste.entries e where posthaste.slot_of(e.pos) = p_slot and e.pos = k.pos limit 1) e
        join posthaste.queue_settings q on q.id = k.subscriber >> 10 and q.retention is not null and q.dropped_at is null
        left join lateral (select y.at from posthaste.erased y where y.message_id = coalesce(e.message_id, e.pos) order by y.message_id limit 1) z on true
       where k.pos >= v_epoch << 22 and k.pos < (v_epoch + 1) << 22 and k.outcome in ('cancelled', 'done') and not k.copied
       order by k.pos, k.subscriber limit p_max - v_copied
    loop
      update posthaste.cancelled k set copied = true where k.pos = x.pos and k.subscriber = x.subscriber;
      v_copied := v_copied + 1;
      continue when x.at + x.retention <= clock_timestamp();
      insert into posthaste.history (part, subscription, queue_id, message_id, created_at, settled_at, expires_at, erased_at, state,
                                     content_type, key, kind, reference, headers, terms, attempts, payload)
      select posthaste.history_part(x.at + x.retention, x.retention), x.subscriber & 1023, x.queue, coalesce(x.message_id, x.pos), x.created_at, x.at,
             x.at + x.retention, x.erased, x.outcome, x.content_type, case when x.erased is null then x.key end, x.kind,
             case when x.erased is null then x.reference end, case when x.erased is null then x.headers end, case when x.erased is null then x.terms end,
             case when x.erased is null then coalesce(x.story, '[]') else posthaste.bare_story(coalesce(x.story, '[]')) end,
             case when x.erased is null then x.payload end;
    end loop;
    exit when v_copied >= p_max;
  end loop;
  return v_copied;
end $$;
