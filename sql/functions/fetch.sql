-- posthaste.fetch: reads what a worker's claim of a number holds, outside the
-- readers' locks and as often as wanted.
-- Returns: one row per delivery that is not withheld, in key order; none where
-- the number has nothing. An empty answer after a lost reply proves nothing:
-- claim again with the same number.
-- Errors: PH409 reclaimed. Reads: claims, entries.
create or replace function posthaste.fetch(p_worker bigint, p_number bigint)
returns table (delivery_id bigint, message_id bigint, attempt smallint, key text, kind text, headers jsonb, payload bytea,
  content_type text, reference text, created_at timestamptz, due_at timestamptz, story jsonb, alone boolean)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off as $$
declare
  c posthaste.claims;
  l posthaste.live := posthaste.live_slots();
begin
  for c in select k.* from posthaste.claims k
            where k.holder = p_worker and k.number = p_number
              and posthaste.in_slots(k.slot, l.l0, l.l1, l.l2, l.l3, l.l4, l.l5, l.l6, l.l7, l.l8, l.l9, l.l10, l.l11, l.l12, l.l13, l.l14, l.l15)
            order by k.id loop
    return query
      select c.id * 4096 + d.place, d.message_id, d.attempt, d.key, d.kind, d.headers, d.payload,
             d.content_type, d.reference, d.created_at, d.due_at, d.story, c.alone
        from posthaste.deliveries_of(c) d;
  end loop;
end $$;
