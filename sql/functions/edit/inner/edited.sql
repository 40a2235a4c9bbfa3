-- posthaste.edited: the content of a message with changes, checked as posthaste.send checks it.
-- Arguments: its queue; its content; the changes, as of posthaste.edit_message.
-- Returns: the content; lane is null if the priority does not change.
-- Errors: PH400, PH413 with the field. Locks, updates: as posthaste.part_lanes.
create or replace function posthaste.edited(q posthaste.queue_settings, p_key text, p_kind text, p_headers jsonb, p_reference text, p_terms text[],
  p_content_type text, p_payload bytea, p_changes jsonb, p_new bytea)
returns posthaste.entries_other language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  c posthaste.entries_other;
  o record;
  v_long text;
begin
  perform posthaste.check_options(p_changes, array['content_type', 'key', 'kind', 'headers', 'reference', 'terms', 'priority'], '{}');
  if coalesce(p_changes, '{}') = '{}' and p_new is null then
    raise exception using errcode = 'PH400', column = 'changes', message = 'no field to change', hint = 'name at least one, such as payload or priority';
  end if;
  o := posthaste.send_options(p_changes, '{}');
  c.content_type := nullif(case when p_changes ? 'content_type' then o.content_type else p_content_type end, 'application/json');
  c.key := case when p_changes ? 'key' then nullif(o.key, '') else p_key end;
  c.kind := case when p_changes ? 'kind' then nullif(o.kind, '') else p_kind end;
  c.reference := case when p_changes ? 'reference' then nullif(o.reference, '') else p_reference end;
  if p_changes ? 'headers' then
    if o.headers is not null and not posthaste.plain_headers(o.headers) then
      raise exception using errcode = 'PH400', column = 'headers', message = 'headers must be an object whose values are strings';
    end if;
    c.headers := nullif(o.headers, '{}');
    c.trace := o.trace;
  else
    c.headers := nullif(p_headers - 'traceparent', '{}');
    c.trace := p_headers ->> 'traceparent';
  end if;
  if p_changes ? 'terms' and o.terms is not null and (jsonb_typeof(o.terms) <> 'array' or jsonb_path_exists(o.terms, 'strict $[*] ? (@.type() != "string")')) then
    raise exception using errcode = 'PH400', column = 'terms', message = 'terms must be an array of strings';
  end if;
  c.terms := case when p_changes ? 'terms' then posthaste.texts_of(nullif(o.terms, '[]')) else p_terms end;
  c.payload := coalesce(p_new, p_payload);
  c.queue_id := q.id;
  c.created_at := clock_timestamp();
  v_long := case when octet_length(c.key) > 255 then 'key' when octet_length(c.kind) > 255 then 'kind' when octet_length(c.reference) > 255 then 'reference'
                 when octet_length(c.content_type) > 255 then 'content_type' when octet_length(c.trace) > 255 then 'trace'
                 when exists (select from unnest(c.terms) t where octet_length(t) > 255) then 'terms' end;
  if v_long is not null then
    raise exception using errcode = 'PH413', column = v_long, message = format('%s is over 255 bytes', v_long);
  elsif cardinality(c.terms) > 1000 then
    raise exception using errcode = 'PH413', column = 'terms', message = 'there are over 1,000 terms';
  elsif (select sum(octet_length(h.key) + octet_length(h.value)) from jsonb_each_text(c.headers) h) > 16384 then
    raise exception using errcode = 'PH413', column = 'headers', message = 'headers are over 16 KiB in total';
  elsif octet_length(c.payload) > q.max_payload then
    raise exception using errcode = 'PH413', column = 'payload', message = format('payload of %s bytes is over the queue''s limit of %s (max_payload)', octet_length(c.payload), q.max_payload);
  end if;
  c.lane := null;
  if p_changes ? 'priority' then
    if q.keyed then
      raise exception using errcode = 'PH400', column = 'priority', message = 'queues that are ordered or fair, or have limits for each key, have no priorities';
    end if;
    c.lane := coalesce(o.priority, 0) * case when coalesce(o.priority, 0) = 0 or q.prioritized or posthaste.part_lanes(q.id) then q.width else 0 end + floor(random() * q.width);
  end if;
  return c;
end $$;
