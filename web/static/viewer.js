// The log viewer: the server's page of lines becomes a window on all of them. See rows.js, log_data.js, strip.js, tail.js.
import { LogData } from "./log_data.js";
import { Rows } from "./rows.js";
import { Strip } from "./strip.js";
import { Tail } from "./tail.js";

const LEVELS = ["info", "warn", "error"];
const MODES = ["off", "utc", "local", "elapsed"];
const two = (n) => String(n).padStart(2, "0");

export function start() {
  const root = document.querySelector("#viewer");
  const bar = root.querySelector(".viewer-bar");
  const by = (name) => bar.querySelector(`[data-act=${name}]`);
  const streams = root.dataset.streams.split(",");
  const merged = streams.length > 1;
  const here = root.dataset.base;
  const pill = root.querySelector(".pill");
  const banner = root.querySelector(".away");
  const status = root.querySelector("[role=status]");
  const scroller = root.querySelector(".log");
  const drawn = new Map();
  let marked = [0, 0], follow = false, seenTotal = 0, seeking = 0, mode = "off", tail;

  const stored = (name, otherwise) => { try { return localStorage.getItem(name) ?? otherwise; } catch { return otherwise; } };
  const store = (name, value) => { try { localStorage.setItem(name, value); } catch { /* storage is off: the choice is this page's */ } };
  const say = (text) => { status.textContent = text; };
  const away = (text) => { banner.hidden = !text; banner.querySelector("span").textContent = text; };

  const data = new LogData(here, Number(root.dataset.total), root.dataset.until, changed, away);
  root.querySelector(".lines-pager").remove();
  scroller.classList.add("virtual");
  const attributes = { role: "table", tabindex: "0", "aria-label": `Lines of ${streams.join(", ")}`, "aria-keyshortcuts": "n p s w t e j k" };
  for (const [name, value] of Object.entries(attributes)) scroller.setAttribute(name, value);
  bar.hidden = false;
  const rows = new Rows(scroller, draw, (first, last) => {
    data.want(first, last);
    for (const n of drawn.keys()) if (n < first - 200 || n > last + 200) drawn.delete(n);
    strip?.follow(data.row(first)?.[4]);
    if (rows.atEnd) { seenTotal = data.total; pill.hidden = true; }
  });
  const strip = new Strip(root.querySelector(".strip"), data, (n) => { stay(); rows.show(n); }, (ms) => clock(ms, mode === "off" ? "utc" : mode));

  function clock(ms, how) {
    if (how === "elapsed") {
      const s = Math.max(0, Math.floor((ms - strip.begin) / 1000));
      return `${Math.floor(s / 3600)}:${two(Math.floor(s / 60) % 60)}:${two(s % 60)}`;
    }
    const t = new Date(ms);
    return how === "utc" ? t.toISOString().slice(11, 19) : `${two(t.getHours())}:${two(t.getMinutes())}:${two(t.getSeconds())}`;
  }

  function element(name, className, text) {
    const made = document.createElement(name);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  }

  // Everything that a machine wrote goes through textContent, and only there. Styles are names of ours, from the server.
  function draw(n) {
    const row = data.row(n);
    const held = drawn.get(n);
    const isMarked = n >= marked[0] && n <= marked[1];
    if (held && held.row === row && held.isMarked === isMarked && held.mode === mode) return held.made;
    const made = element("div", "row");
    made.setAttribute("role", "row");
    made.setAttribute("aria-rowindex", n);
    made.dataset.row = n;
    if (isMarked) { made.classList.add("marked"); made.setAttribute("aria-selected", "true"); }
    const [, stream, number, level, ms, bytes, text] = row ?? [n, 0, merged ? "" : n, 0, 0, 0, ""];
    const gap = Array.isArray(text) && text.length > 0 && text.every(([, styles]) => styles === "gap");
    made.classList.add(row === null ? "never" : row === undefined ? "coming" : gap ? "gap-row" : `is-${LEVELS[level]}`);
    const link = element("a", "", gap ? "" : number);
    link.setAttribute("role", "rowheader");
    link.tabIndex = -1;
    link.href = merged ? `${here.replace(/[^/]*$/, streams[stream])}#L${number}` : `#L${n}`;
    made.append(link);
    if (mode !== "off") {
      const time = element("time", "", ms ? clock(ms, mode) : "");
      time.setAttribute("role", "cell");
      if (ms) time.title = new Date(ms).toISOString();
      made.append(time);
    }
    if (merged) made.append(element("b", `tag tag-${stream}`, row ? streams[stream] : ""));
    const words = element("span", "words");
    words.setAttribute("role", "cell");
    if (Array.isArray(text)) for (const [piece, styles] of text) words.append(styles ? element("span", styles, piece) : piece);
    else words.textContent = text;
    if (row === null && !merged) words.textContent = "not in the archive";
    if (bytes) words.append(element("b", "attention", ` … ${bytes.toLocaleString("en")} bytes in all; the rest is in the download`));
    if (level > 0) words.prepend(element("i", "hidden-label", `${LEVELS[level]}: `));
    made.append(words);
    drawn.set(n, { row, isMarked, mode, made });
    return made;
  }

  function changed() {
    const atEnd = rows.atEnd && follow;
    scroller.setAttribute("aria-rowcount", data.total);
    rows.setTotal(data.total);
    if (atEnd || follow) rows.showEnd(); else rows.render();
    const news = data.total - seenTotal;
    pill.hidden = follow || rows.atEnd || news <= 0 || !tail;
    pill.textContent = `${news.toLocaleString("en")} new ${news === 1 ? "line" : "lines"} ↓`;
  }

  function stay() { setFollow(false); }

  function setFollow(on) {
    follow = on && Boolean(tail);
    const button = by("follow");
    button.hidden = !tail;
    button.setAttribute("aria-pressed", String(follow));
    if (follow) { seenTotal = data.total; pill.hidden = true; rows.showEnd(); }
  }

  const range = () => /^#L(\d{1,15})(?:-L(\d{1,15}))?$/.exec(location.hash);

  function mark(first, last) {
    marked = [Math.min(first, last), Math.max(first, last)];
    rows.render();
  }

  // To the row(s) that the address names. Rows that are in sight stay where they are.
  function fromAddress() {
    const found = range();
    if (!found || merged) { mark(0, 0); return false; }
    stay();
    marked = [Number(found[1]), Number(found[2] ?? found[1])].sort((a, b) => a - b);
    if (rows.isInSight(marked[0])) rows.render(); else rows.show(marked[0], "middle");
    return true;
  }

  function goTo(n, replace = true) {
    stay();
    const row = Math.max(1, Math.min(data.total, n));
    marked = [row, row];
    if (!merged) history[replace ? "replaceState" : "pushState"](null, "", `#L${row}`);
    if (rows.isInSight(row)) rows.render(); else rows.show(row, "middle");
  }

  // The next (or last) error, or match of what is searched for; the server looks for a while at a time.
  async function seek(back, query, from) {
    const mine = ++seeking;
    let at = from ?? (marked[0] || (back ? rows.bottom + 1 : rows.top - 1));
    const what = query.q ? "match" : "error";
    for (;;) {
      const answer = await data.ask("seek", { row: at, ...(back ? { back: 1 } : {}), ...query });
      if (mine !== seeking) return 0;
      if (!answer) return 0;
      if (answer.wrong) { say(answer.wrong); return 0; }
      if (answer.found) { say(`${what === "match" ? "Match" : "Error"} in line ${answer.found.toLocaleString("en")}`); return answer.found; }
      if (!answer.looked) { say(`No ${what} ${back ? "before" : "after"} this`); return 0; }
      at = answer.looked;
      say(`Looking; at line ${at.toLocaleString("en")}`);
    }
  }

  async function step(back, query = {}) {
    const found = await seek(back, query);
    if (found) goTo(found);
  }

  const find = bar.querySelector("[name=find]");
  const regex = bar.querySelector("[name=find-regex]");
  const findIt = (back) => { if (find.value.trim()) step(back, { q: find.value, ...(regex.checked ? { regex: "on" } : {}) }); };

  function setWrap(on) {
    rows.body.classList.toggle("wrap", on);
    by("wrap").setAttribute("aria-pressed", String(on));
    store("log-wrap", on ? "on" : "off");
    rows.render();
  }

  function setMode(next) {
    mode = MODES.includes(next) ? next : "off";
    bar.querySelector("[name=time]").value = mode;
    rows.body.classList.toggle("timed", mode !== "off");
    store("log-time", mode);
    rows.render();
  }

  const acts = {
    next: () => step(false),
    previous: () => step(true),
    "find-next": () => findIt(false),
    "find-previous": () => findIt(true),
    wrap: () => setWrap(!rows.wraps),
    follow: () => setFollow(!follow),
  };
  bar.addEventListener("click", (event) => acts[event.target.closest("[data-act]")?.dataset.act]?.());
  pill.addEventListener("click", () => setFollow(true));
  find.closest("form").addEventListener("submit", (event) => event.preventDefault());
  find.addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); findIt(event.shiftKey); } });
  const line = bar.querySelector("[name=line]");
  line.closest("form").addEventListener("submit", (event) => {
    event.preventDefault();
    const n = Number(line.value.replace(/\D/g, ""));
    if (n) goTo(n, false);
  });
  bar.querySelector("[name=time]").addEventListener("change", (event) => setMode(event.target.value));

  scroller.addEventListener("click", (event) => {
    const link = event.target.closest(".row > a");
    if (!link || merged || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const n = Number(link.parentElement.dataset.row);
    const [low, high] = event.shiftKey && marked[0] ? [marked[0], n].sort((a, b) => a - b) : [n, n];
    history.pushState(null, "", low === high ? `#L${low}` : `#L${low}-L${high}`);
    mark(low, high);
  });
  for (const moved of ["wheel", "touchmove", "pointerdown"]) scroller.addEventListener(moved, () => { if (follow) queueMicrotask(stay); }, { passive: true });
  addEventListener("popstate", fromAddress);
  addEventListener("hashchange", fromAddress);

  const keys = {
    n: acts.next,
    p: acts.previous,
    s: () => find.focus(),
    w: acts.wrap,
    t: () => setMode(MODES[(MODES.indexOf(mode) + 1) % MODES.length]),
    e: () => (tail ? setFollow(true) : rows.showEnd()),
    j: () => goTo((marked[0] || rows.top - 1) + 1),
    k: () => goTo((marked[0] || rows.top + 1) - 1),
    ">": () => findIt(false),
    "<": () => findIt(true),
    Home: () => { stay(); rows.show(1); },
    End: () => (tail ? setFollow(true) : rows.showEnd()),
    ArrowUp: () => { stay(); rows.move(-20); rows.settle(); },
    ArrowDown: () => { rows.move(20); rows.settle(); },
    PageUp: () => { stay(); rows.move(40 - rows.height); rows.settle(); },
    PageDown: () => { rows.move(rows.height - 40); rows.settle(); },
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || event.defaultPrevented) return;
    if (event.target.closest("input, select, textarea, dialog, summary, .strip")) return;
    const action = keys[event.key];
    if (action) { event.preventDefault(); action(); }
  });

  rows.setTotal(data.total);
  setWrap(stored("log-wrap", innerWidth < 700 ? "on" : "off") === "on");
  setMode(stored("log-time", "off"));
  strip.load().then(() => { drawn.clear(); rows.render(); });
  open();

  async function open() {
    const from = Number(new URLSearchParams(location.search).get("from"));
    const named = fromAddress();
    if (!named && from) rows.show(from);
    seenTotal = data.total;
    if (!named && !from) {
      const found = await seek(false, {}, 0);
      if (found && !range()) { marked = [found, found]; rows.show(found, "middle"); }
      else if (!found) say("");
      if (!found && root.dataset.tail) follow = true;
    }
    if (root.dataset.tail) {
      tail = new Tail(root.dataset.tail, streams, data, { grown: changed, away });
      setFollow(follow);
    }
    root.dataset.ready = "1";
  }
}
