-- posthaste.fail: records that handling a received delivery failed.
-- Options: permanent (a retry cannot succeed), retry_after (an interval that replaces the
-- queue's backoff; excludes permanent), receipt (the reply of another system), terms (the terms
-- of the message, used if it was sent without any), strict, wake as for ack.
-- Returns: whether this call settled it, its outcome (retried or dead) and when the next attempt
-- may start.
-- Errors: PH400; PH409 when strict.
create or replace function posthaste.fail(delivery_id bigint, error text, options anycompatible default null::text)
returns table (settled boolean, outcome text, due_at timestamptz)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_options jsonb := posthaste.json_argument(fail.options, 'options');
  v_permanent boolean;
begin
  perform posthaste.check_options(v_options, array['permanent', 'retry_after', 'receipt', 'terms', 'strict', 'wake'], '{}');
  perform posthaste.check_json(v_options -> 'receipt', (v_options -> 'receipt')::text, 'receipt');
  if coalesce(fail.error, '') !~ '[^[:space:]]' then
    raise exception using errcode = 'PH400', column = 'error', message = 'error must not be empty';
  end if;
  v_permanent := posthaste.option_boolean(v_options, 'permanent', false);
  if v_permanent and v_options ->> 'retry_after' is not null then
    raise exception using errcode = 'PH400', column = 'retry_after', message = 'retry_after and permanent exclude each other: a permanent failure is not retried';
  end if;
  return query select s.settled, s.outcome, s.due_at
    from posthaste.settle_singles(array[fail.delivery_id],
           case when v_permanent then 'dead' else 'retried' end,
           case when v_options ? 'receipt' then jsonb_build_array(v_options -> 'receipt') end, fail.error,
           v_options, case when v_options ? 'terms' then jsonb_build_array(v_options -> 'terms') end) s;
end $$;
