// Keeps a page live. The server says once a second at most that something has changed; then the page is fetched again,
// and every region marked data-live is exchanged if it differs. A region under the pointer or with the focus waits, so
// that nothing jumps. A hidden tab listens to nothing.
const root = document.querySelector('meta[name="daybreak-root"]').content;
const button = document.getElementById("live");
const SLOW = 15000; // without news a page is fetched so often, because times pass: "2 min ago"
const PAUSE = 1000;
const FOLLOWING = 1500; // pages that show what follows from events, marked data-follows, are fetched once more

let source = null, timer = null, later = null, wanted = false, fetching = false, paused = false, last = 0, forced = false;

function say(text) {
  if (button && button.textContent !== text) button.textContent = text;
}

function open() {
  if (source || paused || document.hidden) return;
  source = new EventSource(`${root}/api/v1/events?summary=true`);
  source.addEventListener("open", () => say("live"));
  source.addEventListener("summary", news);
  source.addEventListener("expired", () => { close(); open(); soon(); });
  source.onerror = () => say("reconnecting");
}

function close() {
  if (source) source.close();
  source = null;
}

function news() {
  soon();
  if (!document.querySelector("[data-follows]")) return;
  clearTimeout(later);
  later = setTimeout(soon, FOLLOWING);
}

function soon() {
  wanted = true;
  if (timer || fetching || document.hidden || paused) return;
  timer = setTimeout(refresh, Math.max(0, PAUSE - (Date.now() - last)));
}

function isBusy(region) {
  return region.matches(":hover") && region.querySelector("table.list, article")
    || region.contains(document.activeElement) && document.activeElement !== document.body
    || region.querySelector("input:checked, details[open].keep");
}

async function refresh() {
  timer = null; fetching = true; wanted = false; last = Date.now();
  const force = forced;
  forced = false;
  try {
    const answer = await fetch(location.href, { headers: { accept: "text/html" }, credentials: "same-origin" });
    if (answer.ok) exchange(new DOMParser().parseFromString(await answer.text(), "text/html"), force);
    else if (answer.status === 401) say("signed out");
  } catch { say("reconnecting"); }
  fetching = false;
  if (wanted) soon();
}

function exchange(page, force) {
  for (const region of document.querySelectorAll("[data-live]")) {
    const fresh = page.getElementById(region.id);
    if (!fresh || fresh.isEqualNode(region)) { region.classList.remove("stale"); continue; }
    // Whoever has just changed something wants to see it.
    if (!force && isBusy(region)) { region.classList.add("stale"); continue; }
    const open = new Set([...region.querySelectorAll("details[open] > summary")].map((one) => one.textContent));
    for (const summary of fresh.querySelectorAll("details > summary"))
      if (open.has(summary.textContent)) summary.parentElement.open = true;
    region.replaceWith(document.adoptNode(fresh));
    document.dispatchEvent(new CustomEvent("daybreak-live", { detail: region.id }));
  }
}

document.addEventListener("pointerout", (event) => {
  if (event.target.closest?.(".stale") && !event.relatedTarget?.closest?.(".stale")) soon();
});
document.addEventListener("visibilitychange", () => {
  if (document.hidden) close();
  else { open(); soon(); }
});
button?.addEventListener("click", () => {
  paused = !paused;
  if (paused) { close(); say("paused"); } else { say("live"); open(); soon(); }
});
document.addEventListener("daybreak-changed", () => {
  forced = true; last = 0;
  if (timer) { clearTimeout(timer); timer = null; }
  soon();
});
setInterval(() => { if (!document.hidden && !paused) soon(); }, SLOW);
open();
