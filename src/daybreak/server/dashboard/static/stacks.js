// Shows where a running job is: its worker is asked when the reader opens the stack of a job, and not before.
const known = new Map(); // by address, so that a refreshed page keeps what was read

async function ask(details) {
  const url = details.dataset.stack;
  let text, asked = "";
  show(url, [known.get(url)?.[0] ?? "Asking its worker…", "asking…"]);
  try {
    const answer = await fetch(url, { credentials: "same-origin" });
    const data = await answer.json();
    text = answer.ok ? data.text : data.detail ?? `the server answered ${answer.status}`;
    asked = `asked at ${new Date().toLocaleTimeString()}`;
  } catch { text = "the server cannot be reached"; }
  known.set(url, [text, asked]);
  show(url, known.get(url));
}

function show(url, [text, asked]) {
  for (const details of document.querySelectorAll("details[data-stack]"))
    if (details.dataset.stack === url) {
      details.querySelector("pre").textContent = text;
      details.querySelector("[data-asked-at]").textContent = asked;
    }
}

// A toggle event does not bubble.
document.addEventListener("toggle", (event) => {
  const details = event.target;
  if (details.dataset?.stack && details.open && !details.dataset.asked) {
    details.dataset.asked = "yes";
    if (known.has(details.dataset.stack)) show(details.dataset.stack, known.get(details.dataset.stack));
    else ask(details);
  }
}, true);
document.addEventListener("click", (event) => {
  if (event.target.dataset?.askStack !== undefined) ask(event.target.closest("details"));
});
document.addEventListener("daybreak-live", () => known.forEach((found, url) => show(url, found)));
