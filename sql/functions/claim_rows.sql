-- posthaste.claim_rows: claims, and where little was handed out returns its rows
-- at once: for small claims a second statement and a second transaction would
-- cost more than reading does. What it does not return, posthaste.fetch reads,
-- outside the readers' locks.
-- Arguments: p_rows, how many rows it may return (more are left to fetch), which
-- is how much longer the readers stay locked; the others as posthaste.claim.
-- Returns: claim's answer in each row, and in those with a delivery_id a
-- delivery. Errors and locks: as posthaste.claim.
create or replace function posthaste.claim_rows(p_rows int, p_worker bigint, p_number bigint, p_queue text, p_subscription text, p_max int,
  p_single boolean default false, p_idle boolean default false, p_due boolean default true, p_again boolean default true)
returns table (handed int, wants_idle boolean, next_due double precision, timeout double precision,
  delivery_id bigint, message_id bigint, attempt smallint, key text, kind text, headers jsonb, payload bytea, content_type text, reference text,
  created_at timestamptz, due_at timestamptz, story jsonb, alone boolean)
language plpgsql volatile security definer rows 100
set search_path = pg_catalog, pg_temp set max_parallel_workers_per_gather = 0 set plan_cache_mode = force_generic_plan set jit = off as $$
#variable_conflict use_column
declare
  c record := posthaste.claim(p_worker, p_number, p_queue, p_subscription, p_max, p_single, p_idle, p_due, p_again);
begin
  if c.handed between 1 and p_rows then
    return query
      select c.handed, c.wants_idle, c.next_due, c.timeout, f.numbered_from + f.ordinality, f.message_id, f.attempt, f.key, f.kind, f.headers,
             f.payload, f.content_type, f.reference, f.created_at, f.due_at, f.story, f.alone
        from posthaste.fetch(p_worker, p_number) with ordinality f;
  else
    handed := c.handed;
    wants_idle := c.wants_idle;
    next_due := c.next_due;
    timeout := c.timeout;
    return next;
  end if;
end $$;
