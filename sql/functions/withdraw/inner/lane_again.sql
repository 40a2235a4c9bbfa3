-- posthaste.lane_again: the lane of an entry that is appended again with another content: the
-- old one. Of a message that was set aside it is a lane of its kind, which workers of another
-- kind do not read.
-- Arguments: the old lane; whether the kind changes; the queue.
create or replace function posthaste.lane_again(p_lane smallint, p_other_kind boolean, p_queue int)
returns smallint language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
  if p_other_kind then
    return (select case when not q.keyed and p_lane >= 4 * q.width then p_lane % q.width else p_lane end from posthaste.queue_settings q where q.id = p_queue);
  end if;
  return p_lane;
end $$;
