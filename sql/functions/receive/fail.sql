-- posthaste.fail: records that handling a received delivery failed.
-- Options: permanent (no retry can mend it), retry_after (an interval in place
-- of the queue's backoff; excludes permanent), receipt (what the outside answered),
-- terms (words to find the message by, taken where it was sent without), strict, wake as for ack.
-- Returns: whether this call settled it, what it became (retried or dead) and
-- when the next attempt may start.
-- Errors: PH400; PH409 when strict.
create or replace function posthaste.fail(delivery_id bigint, error text, options jsonb default '{}')
returns table (settled boolean, outcome text, due_at timestamptz)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  o jsonb := fail.options;
  v_permanent boolean;
begin
  perform posthaste.check_options(o, array['permanent', 'retry_after', 'receipt', 'terms', 'strict', 'wake'], '{}');
  perform posthaste.check_json(o -> 'receipt', (o -> 'receipt')::text, 'receipt');
  if coalesce(fail.error, '') !~ '[^[:space:]]' then
    raise exception using errcode = 'PH400', column = 'error', message = 'error must say what went wrong';
  end if;
  v_permanent := posthaste.option_boolean(o, 'permanent', false);
  if v_permanent and o ->> 'retry_after' is not null then
    raise exception using errcode = 'PH400', column = 'retry_after', message = 'retry_after excludes permanent: what failed for good is not tried again';
  end if;
  return query select s.settled, s.outcome, s.due_at
    from posthaste.settle_singles(array[fail.delivery_id],
           case when v_permanent then 'dead' else 'retried' end,
           case when o ? 'receipt' then jsonb_build_array(o -> 'receipt') end, fail.error,
           o, case when o ? 'terms' then jsonb_build_array(o -> 'terms') end) s;
end $$;
