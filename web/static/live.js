// A live page: parts replaced when they changed, lines appended to the tail. Without a stream the page is asked for again.
const POLL_MS = 5000;
const KEPT_ROWS = 600;
const bar = document.querySelector("[data-stream]");
const tail = document.querySelector("#tail");
let source, timer, position = "", ended = false;

function say(text, away = false) {
  bar.hidden = false;
  const words = bar.querySelector("span");
  if (words.textContent !== text) words.textContent = text;
  bar.classList.toggle("attention", away);
}

// Swap the inside of a part; a link in it that had the focus keeps it.
function swap(id, html) {
  const part = document.getElementById(`part-${id}`);
  if (!part || part.innerHTML === html) return;
  const focused = part.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  part.innerHTML = html;
  if (focused) part.querySelector(`[href="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
}

function append(lines) {
  if (!tail) return;
  tail.closest("section").hidden = false;
  const follow = tail.scrollTop + tail.clientHeight >= tail.scrollHeight - 24;
  for (const [stream, number, text] of lines) {
    const row = document.createElement("div");
    const name = document.createElement("b");
    const words = document.createElement("span");
    row.className = "tail-row";
    name.textContent = stream;
    name.title = `${stream}, line ${number}`;
    words.textContent = text;
    row.append(name, words);
    tail.append(row);
  }
  while (tail.childElementCount > KEPT_ROWS) tail.firstElementChild.remove();
  if (follow) tail.scrollTop = tail.scrollHeight;
}

// The whole page again: for buttons after the end, and while there is no stream.
async function refresh() {
  const reply = await fetch(location.href, { headers: { Accept: "text/html" } }).catch(() => null);
  if (!reply?.ok || reply.redirected) { say(reply?.redirected ? "Your session has ended: sign in again" : "No connection; trying again", true); return; }
  const page = new DOMParser().parseFromString(await reply.text(), "text/html");
  for (const part of page.querySelectorAll("[id^=part-]")) swap(part.id.slice(5), part.innerHTML);
  const actions = page.querySelector("#actions");
  const here = document.querySelector("#actions");
  if (actions && here && !here.querySelector("details[open]")) here.innerHTML = actions.innerHTML;
  if (!page.querySelector("[data-stream]")) finish();
}

function finish() {
  ended = true;
  close();
  bar.hidden = true;
}

function close() {
  source?.close();
  source = undefined;
  clearInterval(timer);
}

function open() {
  if (ended || source) return;
  const stream = source = new EventSource(position ? `${bar.dataset.stream}?after=${encodeURIComponent(position)}` : bar.dataset.stream);
  const on = (name, act) => stream.addEventListener(name, (event) => { position = event.lastEventId || position; act(JSON.parse(event.data)); });
  stream.addEventListener("open", () => { clearInterval(timer); say("Live"); });
  on("part", ({ id, html }) => swap(id, html));
  on("lines", append);
  on("notice", ({ text }) => say(text || "Live", Boolean(text)));
  on("reset", () => tail?.replaceChildren());
  on("end", ({ why }) => {
    close();
    if (why === "ended") { ended = true; refresh().then(finish); } else { ended = true; say("Your session has ended: sign in again", true); }
  });
  stream.addEventListener("error", () => {
    if (stream.readyState === EventSource.CLOSED) {
      // Refused (too many live pages, or signed out): ask for the page now and then, and for a stream again later.
      close();
      say("Not live, perhaps because too many look: asking every 5 s. The archive has every line", true);
      let asked = 0;
      timer = setInterval(() => { if (!document.hidden) { refresh(); if (++asked % 6 === 0) { close(); open(); } } }, POLL_MS);
    } else say("Reconnecting", true);
  });
}

export function start() {
  open();
  // A hidden tab gives its connection up: browsers allow six to a host.
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  addEventListener("pagehide", close);
  addEventListener("pageshow", () => { if (!document.hidden) open(); });
}
