// Keeps the page live and sends its buttons' requests; without it every page still shows its state.
const live = document.getElementById("live");
const message = document.getElementById("message");

function tell(text, done) {
  message.textContent = text;
  message.hidden = !text;
  message.classList.toggle("done", done);
}

async function refresh() {
  if (!document.querySelector("[data-live]")) return;
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (answer.redirected) return location.assign(answer.url);
    if (!answer.ok) throw new Error(answer.status);
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const part of document.querySelectorAll("[data-live]")) {
      const next = fresh.getElementById(part.id);
      // What has the focus stays, so that keyboards and screen readers do not lose their place.
      if (next && next.innerHTML !== part.innerHTML && !part.contains(document.activeElement)) part.replaceWith(next);
    }
    live.textContent = "live";
    live.classList.add("on");
  } catch {
    live.textContent = "not live";
    live.classList.remove("on");
  }
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-post]");
  if (!button) return;
  button.disabled = true;
  const headers = { "Content-Type": "application/json", "X-Requested-By": "page" };
  try {
    const answer = await fetch(button.dataset.post, { method: "POST", headers, body: button.dataset.body ?? "{}" });
    const body = await answer.json();
    if (answer.ok) tell(body.joined ? "The same job waits already." : `Done: ${body.status ?? (body.paused ? "paused" : "resumed")}.`, true);
    else tell(body.error.message, false);
  } catch {
    tell("The service does not answer.", false);
  }
  button.disabled = false;
  button.blur();
  await refresh();
});

if (live) {
  refresh();
  setInterval(() => document.hidden || refresh(), 2000);
}
