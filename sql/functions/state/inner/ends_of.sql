-- posthaste.ends_of: how deliveries of one claim ended.
-- Arguments: claim id; positions of entries in its slice; told: whether the times of
-- settlement are wanted, or only whether they were settled.
-- Returns: per position, claimed_at and holder; settled_at and duration of the settlement,
-- null without one; and the columns of its own outcome, if it has one: outcome, ended_at,
-- took, error, receipt, terms; notes, if told, as posthaste.notes_of. No rows for a claim that was reclaimed.
-- Usually all of a slice ended the same way, except for a few with an outcome of their own.
-- Then their places need not be known, which would require reading the whole slice.
-- The slot is a parameter, so that partitions are pruned before they are set up.
-- Reads: claims, settlements, notes, outcomes, entries.
create or replace function posthaste.ends_of(p_claim bigint, p_poss bigint[], p_told boolean)
returns table (pos bigint, claimed_at timestamptz, holder bigint, settled_at timestamptz, duration real,
  outcome text, ended_at timestamptz, took real, error text, receipt jsonb, terms text[], notes jsonb)
language plpgsql stable rows 1000
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_column
declare
  v_slot bigint := (p_claim >> 22) & 15;
  v_claim posthaste.claims;
  v_rows bigint;
  v_settled bigint;
  v_outcomes bigint := 0;
  v_at timestamptz;
  v_duration real;
  v_noted boolean;
begin
  select * into v_claim from posthaste.claims k where k.slot = v_slot and k.id = p_claim;
  if v_claim.id is null then
    return;
  end if;
  select count(*), coalesce(case when v_claim.single then count(*) else max(bit_count(t.bits)) end, 0) into v_rows, v_settled
    from posthaste.settlements t where t.slot = v_slot and t.claim = p_claim;
  if v_settled > 0 then
    select count(*) into v_outcomes from (select from posthaste.outcomes o where o.slot = v_slot and o.claim = p_claim limit 65) o;
  end if;
  v_noted := p_told and exists (select from posthaste.notes n where n.slot = v_slot and n.claim = p_claim and not n.last);
  if v_claim.withheld is null and not v_noted and v_outcomes <= 64 and (v_settled = 0 or v_settled = v_claim.places and (not p_told or v_rows = 1)) then
    select t.at, t.duration into v_at, v_duration from posthaste.settlements t where t.slot = v_slot and t.claim = p_claim order by t.part, t.number limit 1;
    return query
      select u.pos, v_claim.at, v_claim.holder, v_at, v_duration, o.outcome, o.at, o.duration, o.error, o.receipt, o.terms, null::jsonb
        from unnest(p_poss) u (pos)
        left join posthaste.outcomes o on o.slot = v_slot and o.claim = p_claim and o.pos = u.pos;
    return;
  end if;
  begin
    return query
      select p.pos, v_claim.at, v_claim.holder, t.at, t.duration, o.outcome, o.at, o.duration, o.error, o.receipt, o.terms,
             case when v_noted then posthaste.notes_of(v_slot, p_claim, p.place) end
        from unnest(p_poss) u (pos)
        join posthaste.deliveries_of(v_claim) p on p.pos = u.pos
        left join lateral (
          select t.at, t.duration from posthaste.settlements t
           where t.slot = v_slot and t.claim = p_claim and t.part = case when v_claim.single then p.place else 0 end
             and get_bit(t.bits, case when v_claim.single then 0 else p.place end) = 1
           order by t.number limit 1) t on true
        left join posthaste.outcomes o on o.slot = v_slot and o.claim = p_claim and o.place = p.place;
  exception when sqlstate 'PH409' then
    return; -- a row of the slice is gone, so counting the others would give wrong numbers
  end;
end $$;
