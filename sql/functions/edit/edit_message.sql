-- posthaste.edit_message: posthaste.update_message with a payload of any type, for clients.
-- Arguments: the message; the changes without the payload; the payload, null to keep it; the
-- version, or null; the actor.
-- Returns: the id, and the new version. Errors: as update_message.
-- Locks: the readers of its queue and lanes; for a dead letter its rows, and its unique key.
-- Inserts: as posthaste.put_again, or edit_dead; action_records.
create or replace function posthaste.edit_message(p_id bigint, p_changes jsonb, p_payload bytea, p_version text, p_by text)
returns table (id bigint, version text)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_held record;
  v record;
  q posthaste.queue_settings;
  c posthaste.entries_other;
  v_refused record;
begin
  -- The locks, before the content is read.
  select bool_or(h.waits) as waits, bool_or(h.state = 'dead') as dead into v_held from posthaste.hold_message(p_id) h;
  select * into v from posthaste.message(p_id) m order by m.state in ('scheduled', 'ready') desc, m.state = 'dead' desc limit 1;
  if p_version is not null and p_version is distinct from v.version then
    raise exception using errcode = 'PH412', column = 'version', message = format('message %s has the version %s, not %s', p_id, v.version, p_version),
      hint = 'read it again, and repeat the change with its version';
  elsif v.payload is null then
    raise exception using errcode = 'PH409', column = 'message_id', message = format('the content of message %s was erased or is not kept', p_id);
  end if;
  select * into q from posthaste.queue_settings s where s.name = v.queue and s.dropped_at is null;
  c := posthaste.edited(q, v.key, v.kind, v.headers, v.reference, v.terms, v.content_type, v.payload, p_changes, p_payload);
  id := p_id;
  if v_held.dead and not v_held.waits then
    id := posthaste.edit_dead(p_id, c, coalesce(p_by, session_user));
  else
    v_refused := posthaste.rewrite(p_id, c, null, null);
    if v_refused.state is not null then
      raise exception using errcode = 'PH409', column = 'message_id',
        message = format('message %s was not changed: it is %s in subscription %L', p_id, case v_refused.state when 'ready' then 'replayed' else v_refused.state end, v_refused.subscription),
        hint = 'a message can be changed while it waits and no subscription was handed it';
    end if;
    insert into posthaste.action_records (by, action, message_id, queue_id, details)
    values (coalesce(p_by, session_user), 'update', p_id, q.id, jsonb_build_object('fields',
      (select jsonb_agg(f order by f) from (select jsonb_object_keys(p_changes) union select 'payload' where p_payload is not null) x (f))));
  end if;
  version := posthaste.message_version(c.content_type, c.key, c.kind, posthaste.all_headers(c.headers, c.trace), c.reference, c.terms, c.payload);
  return next;
end $$;
