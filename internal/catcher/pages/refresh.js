// Shows new mails while the page is visible.
setInterval(async () => {
  if (document.hidden) return;
  const answer = await fetch(location.href, { headers: { Accept: "text/html" } }).catch(() => null);
  if (!answer || !answer.ok) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const now = document.querySelector("main"), next = page.querySelector("main");
  if (next && now.innerHTML !== next.innerHTML) {
    now.replaceWith(next);
    document.title = page.title;
  }
}, 2000);
