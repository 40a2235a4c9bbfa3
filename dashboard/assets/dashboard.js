// Shows times in the viewer's time zone, and keeps live pages from moving under the viewer. All
// pages work without this script.
"use strict";

const format = new Intl.DateTimeFormat(undefined, {
  year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", timeZoneName: "short",
});

function localTimes() {
  for (const time of document.querySelectorAll("time[datetime]:not([title])")) {
    const at = new Date(time.dateTime);
    if (isNaN(at)) continue;
    time.title = time.textContent;
    time.textContent = format.format(at);
  }
}
localTimes();
document.querySelector("nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });

const live = document.getElementById("live");
const button = document.getElementById("pause");
if (live && button) {
  let paused = sessionStorage.getItem("paused") === "1";
  let source = null;
  // A browser has few connections to a server, so that hidden pages must not hold one.
  const follow = () => {
    const wanted = !paused && !document.hidden;
    if (!wanted && source) {
      source.close();
      source = null;
    } else if (wanted && !source) {
      const opened = (source = new EventSource(live.dataset.events));
      opened.addEventListener("look", () => htmx.trigger(live, "look"));
      opened.addEventListener("error", () => {
        if (opened.readyState !== EventSource.CLOSED || source !== opened) return; // else it opens again by itself
        source = null;
        setTimeout(follow, 10000);
      });
    }
  };
  const show = () => {
    button.textContent = paused ? "Resume updates" : "Pause updates";
    button.setAttribute("aria-pressed", paused);
    follow();
  };
  document.addEventListener("visibilitychange", follow);
  show();
  button.hidden = false;
  button.addEventListener("click", () => {
    paused = !paused;
    sessionStorage.setItem("paused", paused ? "1" : "0");
    show();
  });
  document.addEventListener("htmx:beforeRequest", (event) => {
    const selected = getSelection();
    const reads = selected && !selected.isCollapsed && live.contains(selected.anchorNode);
    if (event.detail.elt === live && reads) event.preventDefault();
  });
  // An answer without the content, such as the page for signing in, is shown as a page.
  document.addEventListener("htmx:beforeSwap", (event) => {
    const text = event.detail.serverResponse;
    if (event.detail.elt === live && (!event.detail.xhr || event.detail.xhr.status !== 200 || !text.includes('id="fresh"'))) {
      event.preventDefault();
      if (text.includes('name="token"')) location.reload();
    }
  });
  document.addEventListener("htmx:afterSettle", localTimes);
  // Morphing keeps what the viewer has opened.
  const defaults = globalThis.Idiomorph && Idiomorph.defaults;
  if (defaults) {
    defaults.callbacks.beforeAttributeUpdated = (name, node) => !(name === "open" && node.tagName === "DETAILS");
  }
}
