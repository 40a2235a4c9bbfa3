-- posthaste.fixed_options: the options of a queue that cannot change from one setting to
-- another, because they determine where messages lie.
-- Returns: the name of each, and why it cannot change.
create or replace function posthaste.fixed_options(a posthaste.queue_settings, b posthaste.queue_settings)
returns table (name text, why text) language sql immutable set search_path = pg_catalog, pg_temp as $$
  select f.name, f.why
    from (values
      (a.mode <> b.mode, 'mode', 'deliveries in flight were claimed under the old guarantee, and would be lost or repeated under the new one'),
      (a.ordered <> b.ordered, 'ordered', 'waiting messages are stored with the order of their keys, or without it, as they were sent'),
      (a.fair <> b.fair, 'fair', 'waiting messages are set aside and read ahead so that keys can take turns, or are not, as the queue was created'),
      (a.width <> b.width and a.keyed, 'lanes', 'the key of a message determines its lane, so waiting messages would lie in other lanes than later ones of their keys'),
      (b.width < a.width, 'lanes', 'messages may wait in the lanes that would end; more lanes are possible'),
      (a.width <> b.width and a.lanes > a.width, 'lanes', 'the queue has messages with priorities, or of kinds that were set aside, whose lanes are counted by this number'),
      (a.keyed <> (b.ordered or b.fair or b.key_concurrency is not null or b.key_rate is not null),
       case when (a.key_concurrency is null) <> (b.key_concurrency is null) then 'key_concurrency' else 'key_rate_limit' end,
       'a queue that looks at keys stores its messages in another way, and this would make it one, or stop it from being one')) f (changes, name, why)
   where f.changes $$;
