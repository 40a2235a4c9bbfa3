-- posthaste.release: hands received deliveries back. The attempt does not count,
-- and no failure is recorded.
-- Options: after (an interval before which they are not handed out again;
-- without it they can be at once), strict, wake as for ack. Returns: per id whether this call
-- settled it.
-- Errors: PH400, PH409 when strict.
create or replace function posthaste.release(delivery_ids bigint[], options jsonb default '{}')
returns table (delivery_id bigint, settled boolean)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
  perform posthaste.check_options(release.options, array['after', 'strict', 'wake'], '{}');
  perform posthaste.check_array(release.delivery_ids, 'delivery_ids');
  perform set_config('posthaste.no_wake', case when posthaste.option_boolean(release.options, 'wake', true) then '' else 'yes' end, true);
  return query select s.delivery_id, s.settled
    from posthaste.settle_singles(release.delivery_ids, 'released', null, null, posthaste.option_wait(release.options, 'after'),
           posthaste.option_boolean(release.options, 'strict', false)) s;
  perform set_config('posthaste.no_wake', '', true); -- of this call alone
end $$;
