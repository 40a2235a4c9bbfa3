-- posthaste.taken_back: whether a message was cancelled, purged or discarded for each
-- subscription that it was for, so that it is handed out to nobody any more. Of one whose
-- first entry is gone nobody can tell who had it, so it was not.
-- Reads: as posthaste.message_states.
create or replace function posthaste.taken_back(p_id bigint)
returns boolean language sql stable set search_path = pg_catalog, pg_temp as
$$ select coalesce(bool_and(m.state in ('cancelled', 'discarded')), false)
            and exists (select from posthaste.entries e where ((e.pos >> 22) & 15) = (p_id >> 22) & 15 and e.pos = p_id and e.message_id is null)
     from posthaste.message_states(
            array(select posthaste.head_of(e) from posthaste.entries e
                   where ((e.pos >> 22) & 15) = (p_id >> 22) & 15 and e.pos = p_id and e.message_id is null)
            || posthaste.other_heads(p_id), false) m $$;
