-- posthaste.lane_apply: applies a lane's events to its keys, and parks the scheduled messages
-- that became due.
-- Arguments: subscriber, lane; the result of posthaste.lane_events; whether some of the
-- messages may not be for the subscription.
-- Returns: the keys to look at, each once, in the order in which they came up; the number of
-- messages that the filter excluded.
-- Called under the lane's lock. Updates: keys. Inserts: parked.
create or replace function posthaste.lane_apply(p_subscriber bigint, p_lane int, p_events jsonb, p_xids xid8[], p_poss bigint[], p_sifts boolean,
  out keys text[], out sifted bigint)
language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
#variable_conflict use_column
declare
  v_queue int := p_subscriber >> 10;
  v_sub posthaste.subscriptions;
  v_found record;
begin
  keys := '{}';
  sifted := 0;
  if p_events <> '[]' then
    perform posthaste.block_keys(p_subscriber, p_lane, array_agg(x.key), array_agg(x.ord::xid8), array_agg(x.id))
       from jsonb_to_recordset(p_events) x (key text, ord text, id bigint)
      where x.id is not null having count(*) > 0;
    update posthaste.keys k set tokens = k.tokens + x.n
      from (select y.ctid, u.n
              from (select z.key, count(*) as n from jsonb_to_recordset(p_events) z (key text, token boolean) where z.token group by 1) u
             cross join lateral (select y.ctid from posthaste.keys y where y.subscriber = p_subscriber and y.key = u.key limit 1) y) x
     where k.ctid = x.ctid and k.tokens is not null;
    for v_found in select x.key, x.stop, x.go from jsonb_to_recordset(p_events) x (key text, stop bigint, go bigint)
              where x.stop is not null or x.go is not null loop
      if v_found.stop is not null then
        insert into posthaste.keys as k (subscriber, key, lane, hash, stopped_by)
        values (p_subscriber, v_found.key, p_lane, posthaste.key_hash(v_found.key), v_found.stop)
        on conflict (subscriber, key) do update set stopped_by = excluded.stopped_by;
      else
        update posthaste.keys k set stopped_by = null
         where k.subscriber = p_subscriber and k.key = v_found.key and k.stopped_by = v_found.go;
      end if;
    end loop;
    keys := array(select x.key from (select o ->> 'key' as key, min(n) as n from jsonb_array_elements(p_events) with ordinality j (o, n) group by 1) x order by x.n);
  end if;
  if cardinality(p_poss) > 0 then
    if p_sifts then
      select x.* into v_sub from posthaste.subscriptions x where x.queue_id = v_queue and x.number = p_subscriber & 1023;
    end if;
    with come as (
      select e.*, not p_sifts or posthaste.is_for(v_sub, e.for_subscription, e.xid, e.due_at, e.kind, e.headers) as mine
        from unnest(p_xids, p_poss) u (xid, pos)
       cross join lateral (
         select * from posthaste.entries e
          where e.queue_id = v_queue and e.lane = p_lane and e.due_at is not null and e.xid = u.xid and e.pos = u.pos
            and ((e.pos >> 22) & 15) = (u.pos >> 22) & 15
          order by e.xid, e.pos limit 1) e
    ), put as (
      insert into posthaste.parked (subscriber, key, ord, message_id, pos, lane, reason, created_at, attempt, failures, losses, losses_alone, ages_from,
                                    content_type, kind, reference, headers, terms, trace, story, payload)
      select p_subscriber, coalesce(c.key, ''), coalesce(c.ord, c.xid), coalesce(c.message_id, c.pos), c.pos, p_lane, 'due', c.created_at, c.attempt, c.failures, c.losses,
             c.losses_alone, c.ages_from, c.content_type, c.kind, c.reference, c.headers, c.terms, c.trace, c.story, c.payload
        from come c where c.mine
      returning key, ord, message_id
    )
    select array_agg(p.key) as keys, array_agg(p.ord) as ords, array_agg(p.message_id) as ids,
           (select count(*) from come c where not c.mine and (not pg_visible_in_snapshot(c.xid, v_sub.since) or v_sub.scheduled and c.due_at > v_sub.created_at)) as out
      into v_found from put p;
    perform posthaste.block_keys(p_subscriber, p_lane, v_found.keys, v_found.ords, v_found.ids);
    keys := keys || array(select distinct x from unnest(v_found.keys) x where x <> all (keys));
    sifted := v_found.out;
  end if;
end $$;
