-- posthaste.story_add: a message's story with one more attempt. It keeps at most 100
-- attempts: the first 20 and the newest 80. The newest attempt has the checkpoint.
create or replace function posthaste.story_add(p_story jsonb, p_attempt jsonb)
returns jsonb language sql immutable set search_path = pg_catalog, pg_temp as
$$ select case when p_story -> -1 ? 'checkpoint' or p_attempt ?| array['checkpoint', 'log'] or p_attempt ->> 'outcome' = 'released' then posthaste.story_noted(p_story, p_attempt)
          when jsonb_array_length(coalesce(p_story, '[]')) < 100 then coalesce(p_story, '[]') || p_attempt
          else (p_story #- '{20}') || p_attempt end $$;
