-- posthaste.put_words: the trigger that adds the words of what is inserted into
-- entries_other.
create or replace function posthaste.put_words()
returns trigger language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
  insert into posthaste.words (slot, message_id, pos, queue_id, lane, word)
  select new.pos >> 22 & 15, coalesce(new.message_id, new.pos), new.pos, new.queue_id, new.lane, w
    from unnest(posthaste.words_of(new.reference, new.terms)) w;
  return null;
end $$;
create or replace trigger words after insert on posthaste.entries_other for each row
  when (new.reference is not null or new.terms is not null) execute function posthaste.put_words();
