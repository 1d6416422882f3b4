// Carries out actions through the REST API, after a confirmation that states what will happen.
const root = document.querySelector('meta[name="daybreak-root"]').content;
const csrf = document.querySelector('meta[name="daybreak-csrf"]').content;
const dialog = document.getElementById("confirm");
const notice = document.getElementById("notice");

async function call(url, method = "POST", body = undefined) {
  const headers = { "x-csrf-token": csrf, "idempotency-key": crypto.randomUUID?.() ?? String(Math.random()) };
  if (body !== undefined) headers["content-type"] = "application/json";
  const answer = await fetch(url, { method, headers, body: body === undefined ? undefined : JSON.stringify(body), credentials: "same-origin" });
  const text = await answer.text();
  let data = {};
  try { data = text ? JSON.parse(text) : {}; } catch { data = {}; }
  if (!answer.ok) throw new Error([data.detail ?? `the server answered ${answer.status}`, data.hint].filter(Boolean).join(". "));
  return data;
}

function say(text) {
  notice.textContent = text;
  clearTimeout(say.timer);
  say.timer = setTimeout(() => { notice.textContent = ""; }, 6000);
}

function confirmed(text, more = "") {
  document.getElementById("confirm-text").textContent = text;
  document.getElementById("confirm-more").textContent = more;
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true }));
}

function changed() { document.activeElement?.blur?.(); document.dispatchEvent(new Event("daybreak-changed")); }

async function act(button) {
  const { action, method = "POST", confirm, then, ask, prompt } = button.dataset;
  let body = button.dataset.body ? JSON.parse(button.dataset.body) : undefined;
  if (ask) {
    const value = window.prompt(prompt);
    if (value === null || !value.trim()) return;
    body = { [ask]: value.trim().toLowerCase() === "none" ? null : Number(value) };
    if (body[ask] !== null && !Number.isInteger(body[ask])) throw new Error(`${value} is not a whole number`);
  } else if (confirm && !(await confirmed(confirm))) return;
  await call(action, method, body);
  say("Done.");
  if (then) location.assign(then); else changed();
}

function states(counts) {
  return Object.entries(counts ?? {}).map(([state, n]) => `${n} ${state}`).join(", ");
}

async function bulk(action, wanted, priority) {
  const body = { action, ...wanted };
  if (action === "priority") body.priority = priority;
  const dry = await call(`${root}/api/v1/jobs/bulk`, "POST", { ...body, dry_run: true });
  if (!dry.matching) { say("No job matches this action now."); return; }
  const jobs = dry.matching === 1 ? "1 job" : `${dry.matching.toLocaleString("en")} jobs`;
  const words = action === "priority" ? `Move ${jobs} to ${priority}?` : `${action[0].toUpperCase()}${action.slice(1)} ${jobs}?`;
  if (!(await confirmed(words, states(dry.by_state)))) return;
  const done = await call(`${root}/api/v1/jobs/bulk`, "POST", body);
  say(`${done.changed.toLocaleString("en")} of ${dry.matching.toLocaleString("en")} changed.`);
  document.querySelectorAll("[data-mark]:checked").forEach((box) => { box.checked = false; });
  marks();
  changed();
}

function marks() {
  const boxes = [...document.querySelectorAll("[data-mark]:checked")];
  const bar = document.getElementById("marked");
  if (bar) { bar.hidden = !boxes.length; document.getElementById("marked-count").textContent = String(boxes.length); }
  return boxes.map((box) => box.value);
}

function argument(input) {
  const text = input.value;
  if (/\bstr\b/.test(input.dataset.type) && !/\bNone\b|\|/.test(input.dataset.type)) return text;
  try { return JSON.parse(text); } catch { return text; }
}

async function submit(form) {
  const args = {};
  for (const input of form.querySelectorAll("[data-argument]"))
    if (input.value !== "" || input.required) args[input.dataset.argument] = argument(input);
  const body = { task: form.dataset.task, args };
  for (const input of form.querySelectorAll("[data-option]")) if (input.value) body[input.dataset.option] = input.value;
  const job = await call(form.dataset.submit, "POST", body);
  location.assign(form.dataset.show + encodeURIComponent(job.id));
}

function guarded(work) { work.catch((error) => say(error.message)); }

document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  if (button.dataset.copy !== undefined) {
    (navigator.clipboard ? navigator.clipboard.writeText(button.dataset.copy) : Promise.reject()).then(() => say("Copied."), () => {
      const area = document.createElement("textarea");
      area.value = button.dataset.copy;
      document.body.append(area); area.select(); document.execCommand("copy"); area.remove(); say("Copied.");
    });
  } else if (button.dataset.action) guarded(act(button));
  else if (button.dataset.bulk) guarded(bulk(button.dataset.bulk, { filter: JSON.parse(button.dataset.filter) }));
  else if (button.dataset.marked) guarded(bulk(button.dataset.marked, { ids: marks() }));
  else if (button.id === "bulk") {
    const filter = JSON.parse(button.closest("[data-filter]").dataset.filter);
    const action = document.getElementById("bulk-action").value;
    // A list of any state means the states in which the action makes sense.
    if (!filter.state?.length) delete filter.state;
    guarded(bulk(action, { filter }, document.getElementById("bulk-priority").value));
  }
});
document.addEventListener("change", (event) => {
  if (event.target.dataset?.mark !== undefined) marks();
  const url = event.target.dataset?.priority;
  if (url) guarded(call(url, "PUT", { priority: event.target.value }).then(() => { say("Priority changed."); changed(); }));
});
document.addEventListener("submit", (event) => {
  if (event.target.dataset.submit) { event.preventDefault(); guarded(submit(event.target)); }
});
document.querySelectorAll("form.filters").forEach((form) => form.addEventListener("submit", () => {
  for (const input of form.elements) if (input.name && !input.value) input.disabled = true;
}));
// Keys: / searches, g and a letter goes to a page (again: to the next one with this letter), l pauses live updates.
let before = "";
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea, dialog")) return;
  if (event.key === "/") {
    const search = document.querySelector('input[type="search"], .filters input');
    if (search) { event.preventDefault(); search.focus(); }
  } else if (event.key === "l") document.getElementById("live")?.click();
  else if (before === "g") {
    const links = [...document.querySelectorAll("nav a")].filter((one) => one.textContent.toLowerCase().startsWith(event.key));
    const link = links[(links.findIndex((one) => one.ariaCurrent === "page") + 1) % links.length];
    if (link) location.assign(link.href);
  }
  before = event.key;
});
