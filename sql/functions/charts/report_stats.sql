-- posthaste.report_stats: stores what a worker counted since its last report.
-- Arguments: worker; an array of at most 10,000 objects {queue, subscription, kind, done, retried,
-- failed, wait, run, errors}: counts of attempts, buckets of how long they waited and ran, and the
-- most frequent errors (see the table stats). Of the errors of a kind the five most frequent are
-- kept, and texts are cut to 500 characters. Objects about queues and subscriptions that do not
-- exist are left out.
-- Errors: PH400; PH410 if the worker is not registered any more.
-- Reads: registrations, queue_settings, subscriptions. Inserts: stats.
create or replace function posthaste.report_stats(p_worker bigint, p_stats jsonb)
returns void language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_now timestamptz := posthaste.chart_time();
  v_worker posthaste.registrations;
begin
  select * into v_worker from posthaste.registrations r where r.id = p_worker and r.lost_at is null and r.ended_at is null;
  if not found then
    raise exception using errcode = 'PH410', message = format('worker %s is not registered any more', p_worker),
      hint = 'register again; other workers get the messages that it held';
  end if;
  if jsonb_typeof(p_stats) is distinct from 'array' or jsonb_array_length(p_stats) > 10000 then
    raise exception using errcode = 'PH400', column = 'stats', message = 'a report must be an array of at most 10,000 objects';
  end if;
  if exists (select from jsonb_to_recordset(p_stats) x (done bigint, retried bigint, failed bigint, wait bigint[], run bigint[])
              where least(x.done, x.retried, x.failed) < 0 or 0 > any (x.wait) or 0 > any (x.run) or cardinality(x.wait) > 32 or cardinality(x.run) > 32) then
    raise exception using errcode = 'PH400', column = 'stats', message = 'counts in a report must not be negative, and wait and run have at most 32 buckets';
  end if;
  insert into posthaste.stats (part, at, queue_id, subscription, kind, version, worker, done, retried, failed, wait, run, errors)
  select posthaste.chart_block(v_now, false) % 3, v_now, s.queue_id, s.number, left(coalesce(x.kind, ''), 255), v_worker.version, v_worker.name,
         coalesce(x.done, 0), coalesce(x.retried, 0), coalesce(x.failed, 0), coalesce(x.wait, '{}'), coalesce(x.run, '{}'),
         case when jsonb_typeof(x.errors) = 'array' then (
           select jsonb_agg(jsonb_build_object('fingerprint', e.fingerprint, 'error', e.error, 'message', e.message, 'count', e.count))
             from (select left(r.fingerprint, 500) as fingerprint, left(r.error, 500) as error, r.message, r.count
                     from jsonb_to_recordset(x.errors) r (fingerprint text, error text, message bigint, count bigint)
                    where r.fingerprint is not null and r.count > 0
                    order by r.count desc limit 5) e) end
    from jsonb_to_recordset(p_stats) x (queue text, subscription text, kind text, done bigint, retried bigint, failed bigint, wait bigint[], run bigint[], errors jsonb)
    join posthaste.chart_names(array(select distinct n ->> 'queue' from jsonb_array_elements(p_stats) n), null) s
      on s.queue = x.queue and s.subscription = coalesce(nullif(x.subscription, ''), 'default');
end $$;
