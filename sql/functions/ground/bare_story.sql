-- posthaste.bare_story: a story without the texts of handlers: the attempts with their
-- outcomes, workers, times and progress, but no error messages, receipts, checkpoints and logs.
create or replace function posthaste.bare_story(p_story jsonb)
returns jsonb language sql immutable set search_path = pg_catalog, pg_temp as
$$ select coalesce(jsonb_agg((a.value - array['receipt', 'checkpoint', 'progress_text', 'log']) || case when a.value ? 'error' then '{"error": "erased"}'::jsonb else '{}' end order by a.n), '[]')
     from jsonb_array_elements(p_story) with ordinality a (value, n) $$;
