-- posthaste.is_for: whether an entry is for a subscription, withdrawn or not.
-- An entry for one subscription alone (a retry) passed its filter before. An entry for all
-- subscriptions must pass it, and must be newer than the subscription, unless the
-- subscription takes messages that become due after it was created.
-- Arguments: the subscription; the entry's columns.
create or replace function posthaste.is_for(s posthaste.subscriptions, p_for int, p_xid xid8, p_due timestamptz, p_kind text, p_headers jsonb)
returns boolean language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
  if p_for is not null then
    return p_for = s.number;
  end if;
  return (not pg_visible_in_snapshot(p_xid, s.since) or (s.scheduled and p_due > s.created_at) is true)
     and posthaste.passes(s.filter, p_kind, p_headers);
end $$;
