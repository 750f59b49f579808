// Keys, the theme switch, ticking times, and the modules of pages that need one. Everything else is HTML.
const $ = (selector, root = document) => root.querySelector(selector);
const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];

function themeSwitch() {
  const button = $("#theme");
  if (!button) return;
  const order = ["auto", "light", "dark"];
  const show = (theme) => { $("span", button).textContent = `Theme: ${theme}`; button.dataset.value = theme; };
  show(document.documentElement.dataset.theme ?? "auto");
  button.hidden = false;
  button.addEventListener("click", () => {
    const next = order[(order.indexOf(button.dataset.value) + 1) % order.length];
    if (next === "auto") { delete document.documentElement.dataset.theme; localStorage.removeItem("theme"); }
    else { document.documentElement.dataset.theme = next; localStorage.setItem("theme", next); }
    show(next);
  });
}

// The server's clock, so that a wrong clock here does not turn "3 s ago" into "in 2 min".
const skew = Number(document.body.dataset.now) - Date.now();

function relative(ms) {
  const gap = Date.now() + skew - ms;
  const seconds = Math.floor(Math.abs(gap) / 1000);
  if (seconds < 5) return "just now";
  const [unit, word] = seconds < 60 ? [1, "s"] : seconds < 3600 ? [60, "min"] : seconds < 172800 ? [3600, "h"] : [86400, "d"];
  const text = `${Math.floor(seconds / unit)} ${word}`;
  return gap > 0 ? `${text} ago` : `in ${text}`;
}

function tick() {
  if (document.hidden) return;
  for (const time of $$("time[data-ms]")) {
    const text = relative(Number(time.dataset.ms));
    if (time.textContent !== text) time.textContent = text;
  }
}

function move(step) {
  const rows = $$("main tbody tr").filter((row) => $("a", row));
  if (!rows.length) return;
  const at = rows.findIndex((row) => row.classList.contains("selected"));
  rows[at]?.classList.remove("selected");
  const row = rows[Math.min(rows.length - 1, Math.max(0, at + step))];
  row.classList.add("selected");
  $("a", row).focus({ preventScroll: true });
  row.scrollIntoView({ block: "nearest" });
}

let pending = "";
const keys = {
  "/": () => $("#search")?.focus(),
  "?": () => $("#keys")?.showModal(),
  j: () => move(1),
  k: () => move(-1),
  "g o": () => location.assign("/"),
  "g r": () => location.assign("/runs"),
  "g f": () => location.assign("/offers"),
  "g m": () => location.assign("/machines"),
  "g c": () => location.assign("/costs"),
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (event.target.closest("input:not([type=checkbox]), select, textarea, dialog")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const action = keys[pending ? `${pending} ${event.key}` : event.key];
  pending = event.key === "g" && !pending ? "g" : "";
  if (action) { event.preventDefault(); action(); }
});

// A form that was sent is not sent twice; the button comes back with the page (also from the back-forward cache).
document.addEventListener("submit", (event) => {
  if (event.target.method !== "post" || event.defaultPrevented) return;
  if (event.target.dataset.sent) { event.preventDefault(); return; }
  event.target.dataset.sent = "1";
});
addEventListener("pageshow", () => { for (const form of $$("form[data-sent]")) delete form.dataset.sent; });

themeSwitch();
setInterval(tick, 1000);
if ($("[data-stream]")) import("./live.js").then((live) => live.start());
if ($("form[data-upload]")) import("./upload.js").then((upload) => upload.start());
if ($("form[data-quote]")) import("./quote.js").then((quote) => quote.start());
if ($("#viewer")) import("./viewer.js").then((viewer) => viewer.start());
