-- posthaste.take_samples: stores how the figures of each subscription changed since the last
-- sample. It does so once in each minute, and is of the minute before.
-- A subscription in which nothing changed gets no row, and its age is not looked at. Its dead
-- letters are counted only if it changed otherwise, or if operators did something in the queue
-- since, with a minute to spare for their transactions: a count reads as many index entries.
-- Called under the maintenance lock, after posthaste.count_up. Inserts: samples. Updates:
-- counters, charted. Reads: dead_letter_entries, action_records, and what
-- posthaste.oldest_waiting reads.
create or replace function posthaste.take_samples()
returns void language plpgsql volatile set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
  v_now timestamptz := posthaste.chart_time();
  v_last timestamptz := (select c.sampled_at from posthaste.charted c);
  v_samples posthaste.samples[];
begin
  if date_trunc('minute', v_last, 'UTC') = date_trunc('minute', v_now, 'UTC') then
    return;
  end if;
  update posthaste.charted set sampled_at = v_now;
  with figures as materialized (
    select x.queue_id, x.subscription, x.sampled as before,
           x.flow || case when x.flow <> x.sampled[1:7]
                            or (select z.at from posthaste.action_records z where z.queue_id = x.queue_id order by z.queue_id desc, z.id desc limit 1) > v_last - interval '1 minute'
                          then (select count(*) from posthaste.dead_letter_entries d where d.queue_id = x.queue_id and d.subscription = x.subscription)
                          else x.sampled[8] end as now
      from (select k.queue_id, k.subscription, k.sampled,
                   array[k.sent - k.sifted, k.done, k.retried, k.lost, k.expired,
                         greatest(k.sent + k.again - k.dropped - k.sifted - k.handed, 0), greatest(k.handed - k.settled, 0)] as flow
              from posthaste.counters k) x
  ), moved as (
    update posthaste.counters k set sampled = f.now from figures f
     where k.queue_id = f.queue_id and k.subscription = f.subscription and f.now <> f.before
    returning k.queue_id, k.subscription, f.before, f.now
  )
  select array_agg(row(0, m.at, m.queue_id, m.subscription, m.now[1] - m.before[1], m.now[2] - m.before[2], m.now[3] - m.before[3], m.now[4] - m.before[4],
                       m.now[5] - m.before[5], m.now[6], m.now[7], m.now[8], 0)::posthaste.samples)
    into v_samples
    from (select y.*, greatest(date_trunc('minute', v_now, 'UTC') - interval '1 minute', date_trunc('hour', u.created_at, 'UTC')) as at
            from moved y join posthaste.subscriptions u on u.queue_id = y.queue_id and u.number = y.subscription) m;
  insert into posthaste.samples (part, at, queue_id, subscription, sent, done, retried, lost, expired, depth, in_flight, dead, oldest_age)
  select posthaste.chart_block(n.at, false) % 3, n.at, n.queue_id, n.subscription, n.sent, n.done, n.retried, n.lost, n.expired, n.depth, n.in_flight, n.dead,
         coalesce(greatest(extract(epoch from clock_timestamp() - w.since), 0), 0)
    from unnest(v_samples) n left join posthaste.oldest_waiting() w on w.queue_id = n.queue_id and w.subscription = n.subscription
   where v_samples is not null; -- otherwise ages are not looked up
end $$;
