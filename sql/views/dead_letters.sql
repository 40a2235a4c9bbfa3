-- posthaste.dead_letters: messages that failed permanently, one row for each subscription that
-- they are dead for, with the story of all attempts. They stay until they are replayed or
-- discarded.
create or replace view posthaste.dead_letters as
select d.message_id, q.name as queue, s.name as subscription, d.error, d.died_at, d.created_at, d.attempt as attempts, d.key, d.kind, posthaste.all_headers(d.headers, d.trace) as headers,
       d.reference, d.terms, coalesce(d.content_type, 'application/json') as content_type, d.payload, d.story, d.erased_at
  from posthaste.dead_letter_entries d
  join posthaste.queue_settings q on q.id = d.queue_id and q.dropped_at is null
  join posthaste.subscriptions s on s.queue_id = d.queue_id and s.number = d.subscription;
