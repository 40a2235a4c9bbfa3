-- posthaste.doctor_quarantined: which claims cannot be rescued, though their holder is
-- gone or their lease is over? Reads: held_claims, queue_settings, subscriptions.
create or replace function posthaste.doctor_quarantined()
returns table (level text, message text, hint text, queue text, subscription text) language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
  return query
    select 'fault', format('claim %s could not be rescued in %s tries, and keeps its slot of the ring: %s', h.claim, h.tries, coalesce(h.error, 'unknown')),
           format('look into the server''s log and check its disk; what cannot be read is made dead letters, without content, by select * from posthaste.give_up(%s)', h.claim), q.name, s.name
      from posthaste.held_claims h
      join posthaste.queue_settings q on q.id = h.subscriber >> 10
      join posthaste.subscriptions s on s.queue_id = q.id and s.number = h.subscriber & 1023
     where h.tries >= 10 order by h.claim limit 100;
end $$;
