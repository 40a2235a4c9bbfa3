-- posthaste.passes: whether a message passes a subscription's filter.
-- Arguments: the filter as posthaste.subscription_filter made it, null for no filter; the
-- message's kind and headers.
-- Returns: true or false, never null. It depends on nothing that can change, because a slice
-- is read again with it.
create or replace function posthaste.passes(p_filter jsonb, p_kind text, p_headers jsonb)
returns boolean language plpgsql immutable parallel safe set search_path = pg_catalog, pg_temp as $$
declare
  h record;
begin
  if p_filter is null then
    return true;
  end if;
  if p_filter ? 'kind' and (p_filter -> 'kind' ? p_kind) is not true then
    return false;
  end if;
  for h in select x.key, x.value from jsonb_each(p_filter -> 'headers') x loop
    if (h.value ? (p_headers ->> h.key)) is not true then
      return false;
    end if;
  end loop;
  return true;
end $$;
