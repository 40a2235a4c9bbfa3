-- posthaste.pass_log: processes the next slice of a keyed lane's log: hands out the messages
-- that may start, and parks the others.
-- Arguments: the queue; the log's cursor; hashes of the keys in flight; the wanted number (0:
-- all are parked), and the number of entries to look at; whether all may start, which saves
-- looking; whether some may not be for this reader, and its subscription's filter; holder,
-- number, until and single as in posthaste.claim_lane; the snapshot, the time, the live slots.
-- Returns: the new cursor; the claim, if something was handed out; the hashes with those of
-- its messages; keys to look at again, and how many messages of each were parked; whether the
-- log is used up.
-- A message is parked if messages of its key are parked, or the key is paused or stopped or has
-- no free place or token. In a fair queue each key gets an equal part of a claim.
-- Called under the lane's lock. Inserts: claims, leases, parked, settlements,
-- outcomes.
-- Updates: keys.
create or replace function posthaste.pass_log(q posthaste.queue_settings, inout c posthaste.claims, inout busy bigint[], p_wanted int, p_look int, p_all boolean, p_sifts boolean, p_filter jsonb,
  p_holder bigint, p_number bigint, p_until timestamptz, p_single boolean, s pg_snapshot, t timestamptz, l posthaste.live,
  out made posthaste.claims, out again text[], out counts bigint[], out drained boolean)
language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_mergejoin = off set enable_nestloop = off as $$
#variable_conflict use_variable
declare
  v_subscriber bigint := c.reader >> 10;
  v_lane int := (c.reader >> 1) & 511;
  v_look int := case when p_all then p_wanted else p_look end;
  v_share int;
  f record;
  p record;
  n int := 0;
  v_now timestamptz := case when q.key_rate is not null then posthaste.token_time(t) end; -- of tokens
  v_handed int;
  v_hashes bigint[];
  v_why text[];
  v_out text[];
  v_last int;
begin
  made := null;
  again := '{}';
  counts := '{}';
  c.withheld := null;
  c.expired := null;
  c.keys := case when q.concurrency is not null then '{}'::bigint[] end;
  c.part := 4;
  if not c.ended then
    f := posthaste.ordered_slice(q.id, v_lane, c.s0, c.s1, c.last_xid, c.last_pos, v_look, l);
    n := cardinality(f.poss);
  end if;
  if n = 0 then
    c.s0 := c.s1;
    c.s1 := s;
    c.window_claim := null;
    f := posthaste.ordered_slice(q.id, v_lane, c.s0, c.s1, '0', 0, v_look, l);
    n := cardinality(f.poss);
  end if;
  drained := n < v_look;
  if n = 0 then
    return;
  end if;
  v_last := n;
  v_handed := n;
  if not p_all then
    if p_sifts then
      v_out := posthaste.left_out(q.id, v_lane, v_subscriber, p_filter, f.ords, f.poss);
    end if;
    v_share := case when p_wanted = 0 then 0 when q.fair then greatest(1, ceil(p_wanted::float8 / (select count(distinct coalesce(x, '')) from unnest(f.keys) x))) end;
    -- The reason why an entry may not start; null: it may.
    select array_agg(x.why order by x.i), array_agg(x.hash order by x.i)
      into v_why, v_hashes
      from (select e.i, e.hash,
                   case when e.out is not null then e.out
                        when e.key is null then case when v_share < e.nth then 'share' end
                        when z.paused_at is not null then 'paused'
                        when z.stopped_by is not null then 'stopped'
                        when z.blocked then 'behind'
                        when q.key_concurrency - coalesce(b.n, 0) < e.nth then 'busy'
                        when q.key_rate is not null and floor(posthaste.key_tokens(z.tokens, z.tokens_at, q.key_rate, q.key_burst, v_now)) < e.nth then 'tokens'
                        when v_share < e.nth then 'share' end as why
              from (select u.key, u.out, posthaste.key_hash(u.key) as hash, u.i, row_number() over (partition by u.key, u.out order by u.i) as nth
                      from unnest(f.keys, v_out) with ordinality u (key, out, i)) e
              -- The nested loop is the only possible plan here, and would be slow below.
              left join lateral (select y.* from posthaste.keys y where y.subscriber = v_subscriber and y.key = e.key limit 1) z on true
              left join (select x as hash, count(*) as n from unnest(busy) x group by 1) b on b.hash = e.hash) x;
    -- The slice ends with the last entry handed out. Without one, all are passed.
    select max(x.i), max(x.nth) into v_last, v_handed
      from (select u.i::int, row_number() over (order by u.i)::int as nth from unnest(v_why) with ordinality u (why, i) where u.why is null) x
     where x.nth <= p_wanted;
    v_handed := coalesce(v_handed, 0);
    v_last := coalesce(v_last, n);
    if v_handed < v_last then
      c.places := v_last;
      c.first_xid := f.ords[1];
      c.first_pos := f.poss[1];
      c.last_xid := f.ords[v_last];
      c.last_pos := f.poss[v_last];
      p := posthaste.park(q, c, l, f.keys[:v_last], f.ords[:v_last], f.poss[:v_last],
        array(select case when u.out is null then u.why end from unnest(v_why, v_out) with ordinality u (why, out, i) where u.i <= v_last order by u.i), t);
      again := p.again;
      counts := p.counts;
      c.sifted := c.sifted + coalesce(cardinality(array_positions(v_out[:v_last], 'filtered')), 0);
    end if;
  end if;
  c.last_xid := f.ords[v_last];
  c.last_pos := f.poss[v_last];
  c.ended := v_last = n and n < v_look;
  drained := drained and v_last = n;
  if v_handed = 0 then
    c := posthaste.put_claim(posthaste.without_places(c), null, null, null, false);
    return;
  end if;
  c.places := v_last;
  c.first_xid := f.ords[1];
  c.first_pos := f.poss[1];
  c.alone := false;
  if v_handed < v_last then
    c.withheld := (select string_agg(case when w is null then '0' else '1' end, '' order by i) from unnest(v_why[:v_last]) with ordinality u (w, i))::bit varying;
  end if;
  if q.max_age is not null then
    c.expired := posthaste.expired_places(c, q.max_age, t);
  end if;
  if not p_all and q.key_rate is not null then
    insert into posthaste.keys as k (subscriber, key, lane, hash, tokens, tokens_at)
    select v_subscriber, u.key, v_lane, posthaste.key_hash(u.key), q.key_burst - count(*), v_now
      from unnest(f.keys[:v_last], v_why[:v_last]) with ordinality u (key, why, i)
     where u.why is null and u.key is not null and coalesce(get_bit(c.expired, u.i::int - 1), 0) = 0 group by u.key
    on conflict (subscriber, key) do update
      set tokens = posthaste.key_tokens(k.tokens, k.tokens_at, q.key_rate, q.key_burst, v_now) - (q.key_burst - excluded.tokens), tokens_at = v_now;
  end if;
  if q.key_concurrency is not null or q.ordered then
    if p_all then
      v_hashes := array(select posthaste.key_hash(u.key) from unnest(f.keys) u (key)); -- in their order, without sorting
    end if;
    c.keys := v_hashes[:v_last];
  end if;
  if q.key_concurrency is not null then
    busy := busy || array(select h from unnest(v_hashes[:v_last], v_why[:v_last]) u (h, why) where u.why is null and h is not null);
  end if;
  c := posthaste.put_claim(c, p_holder, p_number, p_until, p_single);
  if c.withheld is not null then
    -- It has nothing to settle, and counts as neither handed out nor settled.
    if p_single then
      insert into posthaste.settlements (slot, claim, part, number, reader, fresh, done, bits)
      select c.slot, c.id, g, 1, c.reader, 0, 0, B'1' from generate_series(0, c.places - 1) g where get_bit(c.withheld, g) = 1;
    else
      insert into posthaste.settlements (slot, claim, part, number, reader, fresh, done, bits)
      values (c.slot, c.id, 0, 1, c.reader, 0, 0, c.withheld);
    end if;
  end if;
  if c.expired is not null then
    perform posthaste.settle_expired(c, false);
  end if;
  made := c;
end $$;
