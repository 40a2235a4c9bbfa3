-- posthaste.brief_story: a story for lists: without logs and checkpoints, which may be large.
create or replace function posthaste.brief_story(p_story jsonb)
returns jsonb language sql immutable set search_path = pg_catalog, pg_temp as
$$ select case when jsonb_path_exists(p_story, '$[*] ? (exists (@.log) || exists (@.checkpoint))')
               then (select jsonb_agg(a.value - array['log', 'checkpoint'] order by a.n) from jsonb_array_elements(p_story) with ordinality a (value, n))
               else p_story end $$;
