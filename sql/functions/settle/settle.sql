-- posthaste.settle: records outcomes of many deliveries in one statement.
-- Arguments: claims ascending, and for each the bits of its deliveries that plainly succeeded;
-- then, in parallel arrays ascending by delivery id, deliveries with details: id, outcome
-- ('done', 'retried', 'dead', 'released', 'set_aside'), error, wait in seconds or null, receipt as JSON text,
-- duration in ms. strict: raise instead of returning false. terms, also parallel or omitted:
-- arrays of the terms of each message, as JSON text, used if it was sent without any.
-- Returns: rows for the second kind, and for plain successes only those that were not settled:
-- delivery id, whether it was settled, its outcome, when the next attempt may start, and if its
-- content is invalid the field and the fault (then nothing was recorded).
-- If a successful delivery had been declared lost, the retry is withdrawn unless it was handed
-- out, but never in strict form.
-- Errors: PH400 for numbers that no claim can have, PH409 in strict form. Locks: only those of
-- inserting; all callers settle in ascending order of (claim, part). For late deliveries, the
-- readers.
create or replace function posthaste.settle(p_claims bigint[], p_done bit varying[],
  p_deliveries bigint[] default '{}', p_outcomes text[] default '{}', p_errors text[] default '{}', p_waits double precision[] default '{}',
  p_receipts text[] default '{}', p_durations real[] default '{}', p_strict boolean default false,
  p_terms text[] default '{}')
returns table (delivery_id bigint, settled boolean, outcome text, due_at timestamptz, field text, refused text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp set max_parallel_workers_per_gather = 0 set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off as $$
declare
  v_claim bigint;
  v_done bit varying;
  v_from int := 1;
  v_to int;
  v_n int := cardinality(p_deliveries);
  v_claim_row posthaste.claims;
  v_zero bit varying;
  v_wanted bit varying;
  v_plain bit varying;
  v_fresh bit varying;
  v_noted boolean;
  v_place int;
  v_receipts jsonb[];
  v_terms jsonb[];
  v_receipt jsonb;
  v_found jsonb;
  v_field text;
  v_places int[];
  v_index int[];
  v_late posthaste.claims[] := '{}';
  v_bits bit varying[] := '{}';
begin
  for i in 1..v_n loop
    if p_deliveries[i] <= p_deliveries[i - 1] then
      raise exception using errcode = 'PH400', column = 'delivery_ids', message = 'deliveries must be distinct and ascending';
    elsif p_outcomes[i] is null or p_outcomes[i] not in ('done', 'retried', 'dead', 'released', 'set_aside') then
      raise exception using errcode = 'PH400', column = 'outcome', message = format('a delivery cannot be settled as %L', p_outcomes[i]);
    end if;
  end loop;
  if exists (select from unnest(p_claims) x where x < 0 or x >= 1::bigint << 51) then
    raise exception using errcode = 'PH400', column = 'claims', message = 'a claim is a number from 0 to 2251799813685247';
  end if;
  for v_claim, v_done in
    select k.claim, k.done
      from (select u.claim, u.done from unnest(p_claims, p_done) u (claim, done)
            union all
            select distinct d >> 12, null::bit varying from unnest(p_deliveries) d where not (d >> 12) = any (p_claims)) k
     order by k.claim
  loop
    -- Those of this claim with details.
    v_to := v_from;
    while v_to <= v_n and p_deliveries[v_to] >> 12 = v_claim loop
      v_to := v_to + 1;
    end loop;
    v_claim_row := null;
    select * into v_claim_row from posthaste.claims where slot = (v_claim >> 22) & 15 and id = v_claim;
    if v_claim_row.id is null or v_claim_row.places = 0 then
      if p_strict then
        raise exception using errcode = 'PH409', message = format('claim %s was reclaimed or never existed', v_claim),
          hint = 'its deliveries do not belong to the caller; roll this transaction back';
      end if;
      return query select v_claim * 4096 + g, false, null::text, null::timestamptz, null::text, null::text
        from generate_series(0, coalesce(length(v_done), 0) - 1) g where get_bit(v_done, g) = 1;
      return query select d, false, null::text, null::timestamptz, null::text, null::text from unnest(p_deliveries[v_from:v_to - 1]) d;
      v_from := v_to;
      continue;
    end if;
    v_zero := repeat('0', v_claim_row.places)::bit varying;
    v_plain := v_zero;
    if v_done is not null then
      v_plain := substring(v_done || v_zero for v_claim_row.places);
      if length(v_done) > v_claim_row.places then
        return query select v_claim * 4096 + g, false, null::text, null::timestamptz, null::text, null::text
          from generate_series(v_claim_row.places, length(v_done) - 1) g where get_bit(v_done, g) = 1;
      end if;
    end if;
    v_wanted := v_plain;
    v_places := '{}';
    v_index := '{}';
    v_receipts := '{}';
    v_terms := '{}';
    for i in v_from..v_to - 1 loop
      v_place := p_deliveries[i] & 4095;
      if v_place >= v_claim_row.places or get_bit(v_wanted, v_place) = 1 then
        return query select p_deliveries[i], false, null::text, null::timestamptz, null::text, null::text;
        continue;
      end if;
      -- A delivery with a bad value fails alone; the others are settled.
      begin
        v_field := 'receipt';
        v_receipt := p_receipts[i]::jsonb;
        v_field := 'terms';
        v_found := case when p_terms[i] is not null then posthaste.found_terms(p_terms[i]) end;
      exception when data_exception or syntax_error or sqlstate 'PH400' then
        return query select p_deliveries[i], false, null::text, null::timestamptz, v_field,
          case when sqlstate = 'PH400' then sqlerrm else v_field || ' is not valid JSON: ' || sqlerrm end;
        continue;
      end;
      -- By subscripts, in place: concatenating two arrays copies both each time.
      v_receipts[cardinality(v_places) + 1] := v_receipt;
      v_terms[cardinality(v_places) + 1] := v_found;
      v_wanted := set_bit(v_wanted, v_place, 1);
      v_places := v_places || v_place;
      v_index := v_index || i;
    end loop;
    v_from := v_to;
    if bit_count(v_wanted) = 0 then
      continue;
    end if;

    for i in 1..cardinality(v_places) loop
      if p_outcomes[v_index[i]] = 'done' then
        v_plain := set_bit(v_plain, v_places[i], 1);
      end if;
    end loop;
    v_noted := v_plain <> v_wanted and posthaste.close_notes(v_claim_row, v_wanted & ~v_plain);
    v_fresh := posthaste.settle_claim(v_claim_row, v_wanted, v_plain, null);
    if v_fresh <> v_wanted then
      perform posthaste.refuse_at_most_once((v_claim_row.reader >> 20)::int);
      if not p_strict and bit_count(v_plain & ~v_fresh) > 0 then
        v_late := v_late || v_claim_row;
        v_bits := v_bits || (v_plain & ~v_fresh);
      end if;
      return query select v_claim_row.id * 4096 + g, false, null::text, null::timestamptz, null::text, null::text
        from generate_series(0, v_claim_row.places - 1) g where get_bit(v_wanted & ~v_fresh, g) = 1;
    end if;
    if cardinality(v_places) > 0 then
      return query
        with mine as (
          select array_agg(v_places[i] order by i) as places, array_agg(p_outcomes[v_index[i]] order by i) as outcomes,
                 array_agg(left(p_errors[v_index[i]], 4000) order by i) as errors, array_agg(p_waits[v_index[i]] order by i) as waits,
                 array_agg(v_receipts[i] order by i) as receipts, array_agg(p_durations[v_index[i]] order by i) as durations,
                 array_agg(v_terms[i] order by i) as terms
            from generate_subscripts(v_places, 1) i where get_bit(v_fresh, v_places[i]) = 1)
        select v_claim_row.id * 4096 + f.place, true, f.outcome, f.due_at, null::text, null::text
          from mine m cross join lateral posthaste.finish(v_claim_row, m.places, m.outcomes, m.errors, m.waits, m.receipts, m.durations, m.terms, v_noted) f
         where m.places is not null;
    end if;
    if p_strict and v_fresh <> v_wanted then
      raise exception using errcode = 'PH409', message = format('%s of the deliveries no longer belonged to the caller', bit_count(v_wanted) - bit_count(v_fresh)),
        hint = 'they were settled before, or their lease ended; roll this transaction back';
    end if;
  end loop;
  -- Last, because it locks readers: in ascending order, as all sessions do.
  for v_place in select g from generate_subscripts(v_late, 1) g order by v_late[g].reader >> 10, v_late[g].reader >> 1 & 255, g loop
    perform posthaste.late_done(v_late[v_place], v_bits[v_place]);
  end loop;
end $$;
