-- posthaste.park: parks entries of a keyed lane's log that may not start yet.
-- Arguments: the queue; the slice of the log with the entries, as a claim; the live slots;
-- keys, orders and positions of its entries, and the reason why each may not start (null: it
-- may, and is not parked); the time.
-- Returns: keys to look at soon again, and how many messages of each were parked: keys that
-- only had their share, or, in queues without order, messages behind one that waits for its
-- time.
-- messages need not wait for one another, stand behind one that waits for its time.
-- Called under the lane's lock. Inserts: parked, entries_other (events). Updates: keys.
create or replace function posthaste.park(q posthaste.queue_settings, c posthaste.claims, l posthaste.live, p_keys text[], p_ords xid8[], p_poss bigint[], p_why text[], t timestamptz,
  out again text[], out counts bigint[])
language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
declare
  v_subscriber bigint := c.reader >> 10;
  v_lane int := (c.reader >> 1) & 511;
  v_now timestamptz;
  k record;
  v_rows int;
begin
  with come as materialized (
    select * from posthaste.keyed_rows(c, l) e where p_why[e.place + 1] is not null
  ), put as (
    insert into posthaste.parked (subscriber, key, ord, message_id, pos, lane, reason, created_at, attempt, failures, losses, losses_alone, ages_from,
                                  content_type, kind, reference, headers, terms, trace, story, payload)
    select v_subscriber, coalesce(e.key, ''), e.ord, e.message_id, e.pos, v_lane, p_why[e.place + 1], e.created_at, e.attempt, e.failures, e.losses, e.losses_alone, e.ages_from,
           e.content_type, e.kind, e.reference, e.headers, e.terms, e.trace, e.story, e.payload
      from come e
  )
  select count(*) into v_rows from come;
  if v_rows <> cardinality(p_why) - cardinality(array_positions(p_why, null)) then
    raise exception 'posthaste: parked % messages of lane % of %, and % may not start', v_rows, v_lane, q.name, cardinality(p_why) - cardinality(array_positions(p_why, null));
  end if;
  perform posthaste.block_keys(v_subscriber, v_lane, array_agg(coalesce(u.key, '')), array_agg(u.ord), array_agg(u.pos), array_agg(u.why = 'busy'))
     from unnest(p_keys, p_ords, p_poss, p_why) u (key, ord, pos, why)
    where u.why is not null;
  if 'tokens' = any (p_why) then
    v_now := posthaste.token_time(t);
    for k in update posthaste.keys z
                -- Each by its key: a join may scan all keys.
                set wake_at = v_now + make_interval(secs => greatest(greatest(1, least(q.key_burst / 2, q.key_rate / 20)) - posthaste.key_tokens(z.tokens, z.tokens_at, q.key_rate, q.key_burst, v_now), 0) / q.key_rate),
                    tokens_at = least(z.tokens_at, v_now)
               from (select y.ctid from (select distinct u.key from unnest(p_keys, p_why) u (key, why) where u.why = 'tokens') x
                      cross join lateral (select y.ctid from posthaste.keys y where y.subscriber = v_subscriber and y.key = x.key limit 1) y) u
              where z.ctid = u.ctid and (z.wake_at is null or z.wake_at <= v_now)
             returning z.key, z.wake_at loop
      perform posthaste.wake_key(v_subscriber, v_lane, k.key, k.wake_at, v_now, t);
    end loop;
  end if;
  select array_agg(x.key), array_agg(x.n) into again, counts
    from (select coalesce(u.key, '') as key, count(*) as n from unnest(p_keys, p_why) u (key, why) where u.why = 'share' or u.why = 'behind' and not q.ordered group by 1) x;
end $$;
