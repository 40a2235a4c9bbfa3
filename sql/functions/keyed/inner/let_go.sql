-- posthaste.let_go: hands out parked messages of a keyed lane: appends them again, in their
-- order, and claims these entries in the same step.
-- Arguments: the queue; the log's reader; the number of the new claim, above the earlier ones;
-- the keys to look at; hashes of the keys in flight; the last number given in the lane's line;
-- the maximum number; whether this claim handed out something before; holder, number, until,
-- single, alone as in posthaste.claim_lane; the time; the live slots.
-- Returns: the keys to look at again: those that it did not reach, and those that had a turn;
-- the hashes with those of the released messages; the last number given; the claim (places 0:
-- nothing); whether a message waits to run alone.
-- A key that had a turn and has more messages goes to the end of the line, and a key that has
-- nothing to hand out leaves it.
-- A key may release: in an ordered queue, messages from its first one on, and none while that
-- one waits for its time; otherwise as many as it has free places and tokens.
-- Called under the lane's lock. Only claims release messages, because a settle does not know
-- which messages are being parked at the same time.
-- Deletes: parked. Updates: keys. Inserts: entries_other, words, claims, leases,
-- settlements, outcomes.
create or replace function posthaste.let_go(q posthaste.queue_settings, p_reader bigint, p_seq bigint, inout keys text[], inout busy bigint[], inout turn bigint,
  p_limit int, p_before boolean, p_holder bigint, p_number bigint, p_until timestamptz, p_single boolean, p_alone boolean, t timestamptz, l posthaste.live,
  out made posthaste.claims, out wants_idle boolean)
language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
#variable_conflict use_variable
declare
  v_subscriber bigint := p_reader >> 10;
  v_lane int := (p_reader >> 1) & 511;
  v_keys text[] := keys;
  v_key text;
  k posthaste.keys;
  r record;
  v_served text[] := '{}';
  v_picked text[] := '{}';
  v_ords xid8[] := '{}';
  v_ids bigint[] := '{}';
  v_hashes bigint[] := '{}';
  v_room int;
  v_bound text;
  v_now timestamptz := case when q.key_rate is not null then posthaste.token_time(t) end; -- of tokens
  v_tokens float8;
  v_wake timestamptz;
  v_share int := ceil(p_limit::float8 / greatest(1, least(cardinality(keys), 8)));
  v_n int;
  v_waits boolean;
  v_stays boolean;
  v_ready boolean;
  v_low_ord xid8;
  v_low_id bigint;
  v_alone boolean := false;
  v_old boolean;
  v_expired bit varying := '';
begin
  keys := '{}';
  wants_idle := false;
  foreach v_key in array v_keys loop
    if cardinality(v_picked) >= p_limit or v_alone then
      keys := keys || v_key;
      continue;
    end if;
    select * into k from posthaste.keys z where z.subscriber = v_subscriber and z.key = v_key;
    if k.key is null or not k.blocked or k.paused_at is not null or k.stopped_by is not null then
      update posthaste.keys z set turn = null where z.subscriber = v_subscriber and z.key = v_key and z.turn is not null;
      continue;
    end if;
    v_room := p_limit - cardinality(v_picked);
    v_bound := 'limit';
    v_tokens := null;
    if q.fair then
      v_room := least(v_room, case when k.early > 0 then greatest(v_share, (p_limit + 1) / 2) else v_share end);
    end if;
    if q.key_concurrency is not null and v_key <> '' then
      v_n := q.key_concurrency - coalesce(cardinality(array_positions(busy, k.hash)), 0);
      if v_n <= v_room then
        v_room := v_n;
        v_bound := 'busy';
      end if;
    end if;
    if q.ordered and k.hash = any (busy) then
      -- Its message in flight is earlier, or comes back in a moment.
      v_room := 0;
      v_bound := 'busy';
    end if;
    if q.key_rate is not null and v_key <> '' and v_room > 0 then
      v_tokens := posthaste.key_tokens(k.tokens, k.tokens_at, q.key_rate, q.key_burst, v_now);
      if floor(v_tokens) < v_room then
        v_room := floor(v_tokens);
        v_bound := 'tokens';
      end if;
    end if;
    v_n := 0;
    v_low_ord := null;
    v_ready := false; -- a message is left that could start
    if v_room <= 0 then
      v_low_ord := k.low_ord;
      v_low_id := k.low_id;
      v_ready := true;
    else
      for r in select p.ord, p.message_id, p.not_before, p.losses, p.created_at, p.ages_from from posthaste.parked p
                where p.subscriber = v_subscriber and p.key = v_key and (p.ord, p.message_id) >= (k.low_ord, k.low_id)
                order by p.ord, p.message_id limit 8192 loop
        v_waits := coalesce(r.not_before > t, false);
        -- Put into the claim, it is settled there: it takes no place and no token.
        v_old := q.max_age is not null and not v_waits and cardinality(v_picked) < 4096 and posthaste.too_old(r.created_at, r.ages_from, q.max_age, t);
        -- Lost twice: it runs alone, while nothing else runs.
        v_stays := not v_old and (v_waits or v_n = v_room or cardinality(v_picked) >= p_limit and q.max_age is not null
          or r.losses >= 2 and (p_before or cardinality(v_picked) > 0 or not p_alone));
        if not v_stays then
          v_picked := v_picked || v_key;
          v_ords := v_ords || r.ord;
          v_ids := v_ids || r.message_id;
          v_hashes := v_hashes || k.hash;
          v_n := v_n + case when v_old then 0 else 1 end;
          v_alone := r.losses >= 2 and not v_old;
          v_expired := v_expired || case when v_old then B'1' else B'0' end;
        end if;
        if v_low_ord is null and (v_stays or v_alone) then
          v_low_ord := r.ord;
          v_low_id := r.message_id;
        end if;
        exit when v_waits and q.ordered;
        if not v_waits and (v_stays or v_alone) then
          wants_idle := wants_idle or v_stays and v_n < v_room and not p_before and cardinality(v_picked) = 0;
          v_bound := case when v_stays and v_n = v_room then v_bound else 'limit' end;
          v_ready := true;
          exit;
        end if;
      end loop;
    end if;
    if v_low_ord is null and q.key_rate is null then
      delete from posthaste.keys z where z.subscriber = v_subscriber and z.key = v_key;
    else
      v_wake := v_now + make_interval(secs => greatest(greatest(1, least(q.key_burst / 2, q.key_rate / 20)) - (v_tokens - v_n), 0) / q.key_rate);
      if v_ready and v_bound = 'tokens' and (k.wake_at is null or k.wake_at <= v_now or k.wake_at > v_wake) then
        k.wake_at := v_wake;
        perform posthaste.wake_key(v_subscriber, v_lane, v_key, v_wake, v_now, t);
      end if;
      update posthaste.keys z
         set blocked = v_low_ord is not null, low_ord = coalesce(v_low_ord, '0'), low_id = coalesce(v_low_id, 0), waits = v_ready and v_bound = 'busy', wake_at = case when k.wake_at > v_now then k.wake_at end,
             turn = case when v_ready and v_bound = 'limit' then let_go.turn + 1 end,
             tokens = case when v_tokens is not null then v_tokens - v_n else z.tokens end, tokens_at = case when v_tokens is not null then v_now else z.tokens_at end
       where z.subscriber = v_subscriber and z.key = v_key;
    end if;
    if v_ready and v_bound = 'limit' then
      turn := turn + 1;
      v_served := v_served || v_key;
    end if;
    if q.key_concurrency is not null or q.ordered then
      busy := busy || array_fill(k.hash, array[v_n]);
    end if;
  end loop;
  -- Keys that had a turn come after those that had none.
  keys := keys || v_served;

  made := null;
  if cardinality(v_picked) = 0 then
    return;
  end if;
  -- Its reader has no cursor: it reads the entries appended here.
  made.reader := posthaste.reader_key(q.id, (p_reader >> 10 & 1023)::int, v_lane + 256, 1);
  made.seq := p_seq - 1;
  made.total := 0;
  with gone as (
    -- Each by its key: a join may scan all parked messages.
    delete from posthaste.parked p
     using (select u.n, y.ctid from unnest(v_picked, v_ords, v_ids) with ordinality u (key, ord, id, n)
             cross join lateral (select x.ctid from posthaste.parked x
                                  where x.subscriber = v_subscriber and x.key = u.key
                                    and (x.ord, x.message_id) >= (u.ord, u.id) and (x.ord, x.message_id) <= (u.ord, u.id)
                                  order by x.ord, x.message_id limit 1) y) u
     where p.ctid = u.ctid
    returning u.n, p.*
  ), again as (
    insert into posthaste.entries_other (ord, message_id, created_at, due_at, queue_id, lane, for_subscription, attempt, failures, losses, losses_alone, ages_from,
                                   content_type, key, kind, reference, headers, terms, trace, story, payload)
    select g.ord, g.message_id, g.created_at, t, q.id, v_lane + 256, v_subscriber & 1023, g.attempt, g.failures, g.losses, g.losses_alone, g.ages_from,
           g.content_type, nullif(g.key, ''), g.kind, g.reference, g.headers, g.terms, g.trace, g.story, g.payload
      from gone g order by g.n
    returning pos, message_id, queue_id, lane, reference, terms
  ), named as (
    insert into posthaste.words (slot, message_id, pos, queue_id, lane, word)
    select a.pos >> 22 & 15, a.message_id, a.pos, a.queue_id, a.lane, w
      from again a cross join lateral unnest(posthaste.words_of(a.reference, a.terms)) w where num_nonnulls(a.reference, a.terms) > 0
  )
  select min(pos), max(pos), count(*) into made.first_pos, made.last_pos, made.places from again;
  if made.places <> cardinality(v_picked) then
    raise exception 'posthaste: expected to release % parked messages of lane % of %, and found %', cardinality(v_picked), v_lane, q.name, made.places;
  end if;
  made.part := 5;
  made.first_xid := pg_current_xact_id();
  made.last_xid := made.first_xid;
  made.ended := true;
  made.alone := v_alone;
  made.expired := case when bit_count(v_expired) > 0 then v_expired end;
  made.keys := case when q.key_concurrency is not null or q.ordered then v_hashes when q.concurrency is not null then '{}' end;
  made := posthaste.put_claim(made, p_holder, p_number, p_until, p_single);
  if made.expired is not null then
    perform posthaste.settle_expired(made, false);
  end if;
end $$;
