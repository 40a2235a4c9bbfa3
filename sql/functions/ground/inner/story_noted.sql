-- posthaste.story_noted: posthaste.story_add for a story with notes.
-- The new attempt gets the checkpoint that the one before it had, unless it has its own; only
-- the newest attempt has one. A released attempt replaces an earlier release of the same
-- attempt, so that a message that is released for ever has a bounded story. All logs together
-- have at most 64 KiB, of which the oldest lines go first.
create or replace function posthaste.story_noted(p_story jsonb, p_attempt jsonb)
returns jsonb language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
  v_story jsonb := coalesce(p_story, '[]');
  v_before jsonb := v_story -> -1;
  v_attempt jsonb := p_attempt;
  v_room int := 65536;
  v_log text;
begin
  if v_before ? 'checkpoint' then
    v_attempt := jsonb_build_object('checkpoint', v_before -> 'checkpoint') || v_attempt;
    v_story := v_story #- '{-1,checkpoint}';
  end if;
  if v_before ->> 'outcome' = 'released' and v_attempt ->> 'outcome' = 'released' and v_before -> 'attempt' = v_attempt -> 'attempt' then
    v_story := v_story - (-1);
    if v_before ? 'log' then
      v_attempt := v_attempt || jsonb_build_object('log', (v_before ->> 'log') || coalesce(v_attempt ->> 'log', ''));
    end if;
  end if;
  if jsonb_array_length(v_story) >= 100 then
    v_story := v_story - 20;
  end if;
  v_story := v_story || jsonb_build_array(v_attempt);
  if v_attempt ? 'log' then
    for i in reverse jsonb_array_length(v_story) - 1..0 loop
      v_log := v_story -> i ->> 'log';
      if v_log is not null and octet_length(v_log) > v_room then
        v_log := posthaste.log_tail(v_log, v_room);
        v_story := case when v_log = '' then v_story #- array[i::text, 'log'] else jsonb_set(v_story, array[i::text, 'log'], to_jsonb(v_log)) end;
      end if;
      v_room := v_room - coalesce(octet_length(v_log), 0);
    end loop;
  end if;
  return v_story;
end $$;
