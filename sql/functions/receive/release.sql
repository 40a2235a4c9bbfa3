-- posthaste.release: returns received deliveries to the queue. The attempt does not count, and
-- no failure is recorded.
-- Options: after (an interval before which they are not redelivered; without it they can be at
-- once), strict, wake as for ack. Returns: for each id whether this call settled it.
-- Errors: PH400, PH409 when strict.
create or replace function posthaste.release(delivery_ids bigint[], options jsonb default '{}')
returns table (delivery_id bigint, settled boolean)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
  perform posthaste.check_options(release.options, array['after', 'strict', 'wake'], '{}');
  return query select s.delivery_id, s.settled from posthaste.settle_singles(release.delivery_ids, 'released', null, null, release.options, null) s;
end $$;
