-- posthaste.notes_of: what the handler of a delivery noted, as fields of its attempt: the newest
-- checkpoint, the newest progress and progress_text, the last 64 KiB of its log, and
-- cancel_requested_at if its message was cancelled while it ran.
-- Arguments: slot and id of the claim, the place. Returns: null if there is nothing.
-- Reads: notes.
create or replace function posthaste.notes_of(p_slot bigint, p_claim bigint, p_place int)
returns jsonb language plpgsql stable
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
  v_notes jsonb;
begin
  select jsonb_strip_nulls(jsonb_build_object('progress', n.progress, 'progress_text', n.progress_text)) into v_notes
    from posthaste.notes n where n.slot = p_slot and n.claim = p_claim and n.place = p_place and n.progress is not null
   order by n.slot, n.claim, n.place, n.number desc limit 1;
  -- Nulls are not stripped: a checkpoint may contain some.
  return nullif(coalesce(v_notes, '{}')
    || coalesce((select jsonb_build_object('checkpoint', n.checkpoint)
                   from posthaste.notes n where n.slot = p_slot and n.claim = p_claim and n.place = p_place and n.checkpoint is not null
                  order by n.slot, n.claim, n.place, n.number desc limit 1), '{}')
    || coalesce((select jsonb_build_object('cancel_requested_at', min(n.at))
                   from posthaste.notes n where n.slot = p_slot and n.claim = p_claim and n.place = p_place and n.cancel
                 having count(*) > 0), '{}')
    || coalesce((select jsonb_strip_nulls(jsonb_build_object('log', posthaste.log_tail(string_agg(x.log, '' order by x.number), 65536)))
                   from (select n.number, n.log, sum(octet_length(n.log)) over (order by n.number desc) - octet_length(n.log) as after
                           from posthaste.notes n where n.slot = p_slot and n.claim = p_claim and n.place = p_place and n.log is not null) x
                  where x.after < 65536), '{}'), '{}');
end $$;
