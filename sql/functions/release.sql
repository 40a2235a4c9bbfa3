-- posthaste.release: hands received deliveries back unstarted. They can be handed
-- out again at once, and the attempt does not count.
-- Options: strict. Returns: per id whether this call settled it.
create or replace function posthaste.release(delivery_ids bigint[], options jsonb default '{}')
returns table (delivery_id bigint, settled boolean)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
  perform posthaste.check_options(release.options, array['strict'], '{}');
  return query select s.delivery_id, s.settled
    from posthaste.settle_singles(release.delivery_ids, 'released', null, null, null,
           posthaste.option_boolean(release.options, 'strict', false)) s;
end $$;
