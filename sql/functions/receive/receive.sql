-- posthaste.receive: hands out messages until a lease ends, to any SQL client. It does not
-- block. Each delivery is settled by itself (ack, fail, release) and may be extended by itself.
-- Arguments: queue; the maximum number, 1 to 1000; the lease, above zero and at most 12 h, the
-- queue's timeout unless given.
-- Options: subscription.
-- Returns: one row per message, with its payload as JSON, or else as bytes, and the newest
-- checkpoint of its earlier attempts.
-- Errors and locks: as posthaste.receive_rows, which does all of it.
create or replace function posthaste.receive(queue text, max bigint default 1, lease interval default null, options anycompatible default null::text)
returns table (delivery_id bigint, message_id bigint, attempt int, key text, kind text, headers jsonb, payload_json jsonb, payload bytea,
  content_type text, created_at timestamptz, due_at timestamptz, reference text, story jsonb, checkpoint jsonb)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp set max_parallel_workers_per_gather = 0 set plan_cache_mode = force_generic_plan set jit = off as $$
#variable_conflict use_column
declare
  v_options jsonb := posthaste.json_argument(receive.options, 'options');
begin
  perform posthaste.check_options(v_options, array['subscription'], '{}');
  return query
    select r.delivery_id, r.message_id, r.attempt, r.key, r.kind, r.headers, p.payload_json, p.payload, r.content_type, r.created_at, r.due_at, r.reference, r.story, r.story -> -1 -> 'checkpoint'
      from posthaste.receive_rows(receive.queue, receive.max, receive.lease, posthaste.option_text(v_options, 'subscription')) r
     cross join lateral posthaste.split_payload(r.payload, r.content_type) p;
end $$;
