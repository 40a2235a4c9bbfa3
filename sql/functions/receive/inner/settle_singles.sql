-- posthaste.settle_singles: settles received deliveries, each by itself.
-- Arguments: ids in any order, possibly repeated; the outcome; parallel receipts or null; error;
-- the caller's options, of which strict, wake and, as the wait before the next attempt,
-- retry_after or after are used; parallel arrays of terms or null.
-- Returns: for each distinct id in ascending order: settled, outcome, due_at.
-- Errors: PH400, PH409 in strict form.
create or replace function posthaste.settle_singles(p_deliveries bigint[], p_outcome text, p_receipts jsonb, p_error text,
  p_options jsonb, p_terms jsonb)
returns table (delivery_id bigint, settled boolean, outcome text, due_at timestamptz)
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_ids bigint[];
  v_said bigint[] := '{}';
  v_receipts text[];
  v_terms text[];
  v_plain bigint[];
  v_option text := case p_outcome when 'released' then 'after' else 'retry_after' end;
  v_wait float8 := extract(epoch from posthaste.option_interval(p_options, v_option));
begin
  perform posthaste.check_singles(p_deliveries);
  if v_wait > 9e12 or clock_timestamp() + make_interval(secs => v_wait) >= posthaste.last_time() then
    raise exception using errcode = 'PH400', column = v_option, message = format('%s reaches beyond the year 9999: %s seconds', v_option, v_wait);
  end if;
  if p_receipts is not null and (jsonb_typeof(p_receipts) <> 'array' or jsonb_array_length(p_receipts) <> cardinality(p_deliveries)) then
    raise exception using errcode = 'PH400', column = 'receipts', message = 'receipts must be an array with one element for each delivery id';
  end if;
  if p_terms is not null and (jsonb_typeof(p_terms) <> 'array' or jsonb_array_length(p_terms) <> cardinality(p_deliveries)) then
    raise exception using errcode = 'PH400', column = 'terms', message = 'terms must be an array with one array of strings for each delivery id';
  end if;
  perform posthaste.found_terms(x.t::text) from jsonb_array_elements(p_terms) x (t) where x.t <> 'null';
  -- Ascending: otherwise two callers with opposite orders would deadlock.
  select array_agg(x.id order by x.id), array_agg(x.receipt order by x.id), array_agg(x.terms order by x.id) into v_ids, v_receipts, v_terms
    from (select distinct on (u.id) u.id, nullif(p_receipts -> (u.n::int - 1), 'null')::text as receipt, nullif(p_terms -> (u.n::int - 1), 'null')::text as terms
            from unnest(p_deliveries) with ordinality u (id, n) order by u.id, u.n) x;
  if v_ids is null then
    return;
  end if;
  if p_outcome = 'done' then
    select array_agg(u.id order by u.id) filter (where u.says), array_agg(u.receipt order by u.id) filter (where u.says),
           array_agg(u.terms order by u.id) filter (where u.says), array_agg(u.id order by u.id) filter (where not u.says)
      into v_said, v_receipts, v_terms, v_plain
      from (select z.*, z.receipt is not null or z.terms is not null as says from unnest(v_ids, v_receipts, v_terms) z (id, receipt, terms)) u;
    v_said := coalesce(v_said, '{}');
    v_plain := coalesce(v_plain, '{}');
  else
    v_said := v_ids;
    v_plain := '{}';
  end if;
  perform set_config('posthaste.no_wake', case when posthaste.option_boolean(p_options, 'wake', true) then '' else 'yes' end, true);
  return query
    with answers as materialized (
      select a.* from posthaste.settle(
        array(select distinct p >> 12 from unnest(v_plain) p order by 1),
        array(select bit_or(set_bit(repeat('0', x.size)::bit varying, x.place, 1))
                from (select p >> 12 as claim, (p & 4095)::int as place, (max(p & 4095) over (partition by p >> 12))::int + 1 as size from unnest(v_plain) p) x
               group by x.claim order by x.claim),
        v_said, array_fill(p_outcome, array[cardinality(v_said)]), array_fill(p_error, array[cardinality(v_said)]),
        array_fill(v_wait, array[cardinality(v_said)]), v_receipts, array_fill(null::real, array[cardinality(v_said)]),
        posthaste.option_boolean(p_options, 'strict', false), v_terms) a
    )
    select i, coalesce(a.settled, true), case when a.settled is null then 'done' else a.outcome end, a.due_at
      from unnest(v_ids) i left join answers a on a.delivery_id = i
     order by i;
  perform set_config('posthaste.no_wake', '', true); -- it applies to this call alone
end $$;
