-- posthaste.progress: records how far the work on a received delivery has come, for people who
-- look at the message.
-- Arguments: the delivery; the done part of the work, 0 to 1; a text of at most 1,000
-- characters, or null; options as posthaste.checkpoint.
-- Returns: true.
-- Errors: PH400; PH409 if the delivery no longer belongs to the caller.
create or replace function posthaste.progress(delivery_id bigint, progress float8, progress_text text default null, options anycompatible default null::text)
returns boolean language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
  if progress.progress is null or not progress.progress between 0 and 1 then
    raise exception using errcode = 'PH400', column = 'progress', message = format('progress must be 0 to 1, got %s', coalesce(progress.progress::text, 'null'));
  elsif length(progress.progress_text) > 1000 then
    raise exception using errcode = 'PH400', column = 'progress_text', message = format('progress_text must have at most 1000 characters, got %s', length(progress.progress_text));
  end if;
  perform posthaste.note_single(progress.delivery_id, null, progress.progress::real, progress.progress_text, coalesce(posthaste.json_argument(progress.options, 'options'), '{}'));
  return true;
end $$;
