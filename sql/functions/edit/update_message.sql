-- posthaste.update_message: changes a waiting message that was handed to no subscription, for all
-- of them or not at all. It keeps its id, its due time and the time when it was sent. A dead
-- letter is sent again with the changes as a new message, whose header replay-of has the old id:
-- an inbox would drop the old one.
-- Arguments: its id; changes: payload, content_type, key, kind, headers, reference, terms,
-- priority, as in posthaste.send; null removes one; absent ones do not change. version: the
-- version of posthaste.message that the changes are meant for; null for any. by: the actor.
-- Returns: the id, which is a new one for a dead letter, and the new version.
-- Errors: PH404; PH409 with the subscription's name if one was handed it; PH412 if it has
-- another version; PH400, PH413 with the field; PH503.
create or replace function posthaste.update_message(message_id bigint, changes anycompatible, version text default null, by text default session_user)
returns table (id bigint, new_version text)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_changes jsonb := posthaste.json_argument(update_message.changes, 'changes');
  v_payload jsonb := v_changes -> 'payload';
begin
  if jsonb_typeof(v_changes) <> 'object' then
    raise exception using errcode = 'PH400', column = 'changes', message = format('changes must be a JSON object, got %s', jsonb_typeof(v_changes));
  end if;
  if v_changes ? 'payload' then
    perform posthaste.check_json(v_payload, v_payload::text);
  end if;
  return query select * from posthaste.edit_message(update_message.message_id, v_changes - 'payload', convert_to(v_payload::text, 'UTF8'), update_message.version, update_message.by);
end $$;
