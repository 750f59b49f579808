// The log viewer: the server's page of lines becomes a window on all of them.
import { BLOCK, LogData } from "./log_data.js";
import { RowView } from "./row_view.js";
import { Rows } from "./rows.js";
import { Strip } from "./strip.js";
import { Tail } from "./tail.js";

const MODES = ["off", "utc", "local", "elapsed"];
const NARROW = 700;

const stored = (name, otherwise) => { try { return localStorage.getItem(name) ?? otherwise; } catch { return otherwise; } };
const store = (name, value) => { try { localStorage.setItem(name, value); } catch { /* storage is off: the choice is this page's */ } };
const named = () => /^#L(\d{1,15})(?:-L(\d{1,15}))?$/.exec(location.hash);

class Viewer {
  constructor(root, data) {
    const { base, streams, total } = root.dataset;
    this.root = root;
    this.bar = root.querySelector(".viewer-bar");
    this.pill = root.querySelector(".pill");
    this.log = root.querySelector(".log");
    this.find = this.bar.querySelector("[name=find]");
    this.following = false;
    this.seen = Number(total);
    this.seeking = 0;
    this.data = Object.assign(data, { changed: () => this.changed(), away: (text) => this.away(text) });
    this.view = new RowView(this.data, streams.split(","), base);
    this.becomeVirtual();
    this.rows = new Rows(this.log, (n) => this.view.draw(n), (first, last) => this.inSight(first, last));
    this.strip = new Strip(root.querySelector(".strip"), this.data, (n) => { this.follow(false); this.rows.show(n); },
      (ms) => this.view.clock(ms));
    this.listen();
  }

  becomeVirtual() {
    this.root.querySelector(".lines-pager").remove();
    this.log.classList.add("virtual");
    const names = this.view.streams.join(", ");
    const attributes = { role: "table", tabindex: "0", "aria-label": `Lines of ${names}`, "aria-rowcount": this.data.total };
    for (const [name, value] of Object.entries(attributes)) this.log.setAttribute(name, value);
    this.bar.hidden = false;
  }

  act(name) { return this.bar.querySelector(`[data-act=${name}]`); }

  say(text) { this.root.querySelector("[role=status]").textContent = text; }

  away(text) {
    const banner = this.root.querySelector(".away");
    banner.hidden = !text;
    banner.querySelector("span").textContent = text;
  }

  open({ row, isError, isWell }) {
    this.rows.setTotal(this.data.total);
    this.wrap(stored("log-wrap", innerWidth < NARROW ? "on" : "off") === "on");
    this.times(stored("log-time", "off"));
    this.strip.load().then(() => { this.view.begin = this.strip.begin ?? 0; this.view.forget(); this.rows.render(); });
    if (!this.fromAddress()) {
      if (isError) { this.mark(row, row); this.say(`Error in line ${row.toLocaleString("en")}`); } else this.rows.show(row);
    }
    const { tail } = this.root.dataset;
    if (tail) {
      const heard = { grown: () => this.changed(), away: (text) => this.away(text) };
      this.tail = new Tail(tail, this.view.streams, this.data, heard);
      this.follow(Boolean(isWell));
    }
    this.root.dataset.ready = "1";
  }

  inSight(first, last) {
    this.data.want(first, last);
    this.view.forget(first, last);
    this.strip?.follow(this.data.row(first)?.[4]);
    if (this.rows.atEnd) { this.seen = this.data.total; this.pill.hidden = true; }
  }

  changed() {
    this.log.setAttribute("aria-rowcount", this.data.total);
    this.rows.setTotal(this.data.total);
    if (this.following) this.rows.showEnd(); else this.rows.render();
    const news = this.data.total - this.seen;
    this.pill.hidden = !this.tail || this.following || this.rows.atEnd || news <= 0;
    this.pill.textContent = `${news.toLocaleString("en")} new ${news === 1 ? "line" : "lines"} ↓`;
  }

  follow(on) {
    this.following = on && Boolean(this.tail);
    this.act("follow").hidden = !this.tail;
    this.act("follow").setAttribute("aria-pressed", String(this.following));
    if (this.following) this.rows.showEnd();
  }

  // Rows that are in sight stay where they are.
  mark(first, last) {
    this.view.marked = [first, last];
    if (!first || this.rows.isInSight(first)) this.rows.render(); else this.rows.show(first, "middle");
  }

  fromAddress() {
    const found = this.view.merged ? null : named();
    if (found) this.follow(false);
    const [first, last] = [Number(found?.[1] ?? 0), Number(found?.[2] ?? found?.[1] ?? 0)].sort((a, b) => a - b);
    this.mark(first, last);
    return Boolean(found);
  }

  goTo(n, { back = false } = {}) {
    this.follow(false);
    const row = Math.max(1, Math.min(this.data.total, n));
    if (!this.view.merged) history[back ? "pushState" : "replaceState"](null, "", `#L${row}`);
    this.mark(row, row);
  }

  // The next (or last) error, or line that is searched for: its row, or 0. The server looks for a while at a time.
  async seek(back, query) {
    const mine = ++this.seeking;
    const what = query.q ? "Match" : "Error";
    let at = this.view.marked[0] || (back ? this.rows.bottom + 1 : this.rows.top - 1);
    for (;;) {
      const answer = await this.data.ask("seek", { row: at, ...(back ? { back: 1 } : {}), ...query });
      if (mine !== this.seeking || !answer) return 0;
      if (answer.wrong) { this.say(answer.wrong); return 0; }
      if (answer.found) { this.say(`${what} in line ${answer.found.toLocaleString("en")}`); return answer.found; }
      if (!answer.looked) { this.say(`No ${what.toLowerCase()} ${back ? "before" : "after"} this`); return 0; }
      at = answer.looked;
      this.say(`Looking; at line ${at.toLocaleString("en")}`);
    }
  }

  async step(back, query = {}) {
    const found = await this.seek(back, query);
    if (found) this.goTo(found);
  }

  search(back) {
    const regex = this.bar.querySelector("[name=find-regex]").checked;
    if (this.find.value.trim()) this.step(back, { q: this.find.value, ...(regex ? { regex: "on" } : {}) });
  }

  wrap(on) {
    this.rows.body.classList.toggle("wrap", on);
    this.act("wrap").setAttribute("aria-pressed", String(on));
    store("log-wrap", on ? "on" : "off");
    this.rows.render();
  }

  times(mode) {
    this.view.mode = MODES.includes(mode) ? mode : "off";
    this.bar.querySelector("[name=time]").value = this.view.mode;
    this.rows.body.classList.toggle("timed", this.view.mode !== "off");
    store("log-time", this.view.mode);
    this.rows.render();
  }

  end() { if (this.tail) this.follow(true); else this.rows.showEnd(); }

  scroll(by) {
    if (by < 0) this.follow(false);
    this.rows.move(by);
    this.rows.settle(true);
  }

  listen() {
    const acts = {
      next: () => this.step(false), previous: () => this.step(true),
      "find-next": () => this.search(false), "find-previous": () => this.search(true),
      wrap: () => this.wrap(!this.rows.wraps), follow: () => this.follow(!this.following),
    };
    this.bar.addEventListener("click", (event) => acts[event.target.closest("[data-act]")?.dataset.act]?.());
    this.pill.addEventListener("click", () => this.follow(true));
    this.bar.querySelector("[name=time]").addEventListener("change", (event) => this.times(event.target.value));
    for (const form of this.bar.querySelectorAll("form")) form.addEventListener("submit", (event) => event.preventDefault());
    this.find.addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); this.search(event.shiftKey); } });
    const line = this.bar.querySelector("[name=line]");
    line.form.addEventListener("submit", () => { const n = Number(line.value.replace(/\D/g, "")); if (n) this.goTo(n, { back: true }); });
    for (const moved of ["wheel", "touchmove", "pointerdown"]) this.log.addEventListener(moved, () => { if (this.following) this.follow(false); }, { passive: true });
    this.log.addEventListener("click", (event) => this.clicked(event));
    addEventListener("popstate", () => this.fromAddress());
    const keys = this.keys(acts);
    document.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || event.defaultPrevented) return;
      if (event.target.closest("input, select, textarea, dialog, summary, .strip")) return;
      const action = keys[event.key];
      if (action) { event.preventDefault(); action(); }
    });
  }

  keys(acts) {
    const page = () => this.rows.height - 40;
    return {
      n: acts.next, p: acts.previous, w: acts.wrap, ">": acts["find-next"], "<": acts["find-previous"],
      s: () => this.find.focus(),
      t: () => this.times(MODES[(MODES.indexOf(this.view.mode) + 1) % MODES.length]),
      e: () => this.end(), End: () => this.end(),
      Home: () => { this.follow(false); this.rows.show(1); },
      j: () => this.goTo((this.view.marked[0] || this.rows.top - 1) + 1),
      k: () => this.goTo((this.view.marked[0] || this.rows.top + 1) - 1),
      ArrowUp: () => this.scroll(-20), ArrowDown: () => this.scroll(20),
      PageUp: () => this.scroll(-page()), PageDown: () => this.scroll(page()),
    };
  }

  // A click on a number links to its line, with shift to the lines from the one before.
  clicked(event) {
    const link = event.target.closest(".row > a");
    if (!link || this.view.merged || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const n = Number(link.parentElement.dataset.row);
    const [low, high] = event.shiftKey && this.view.marked[0] ? [this.view.marked[0], n].sort((a, b) => a - b) : [n, n];
    history.pushState(null, "", low === high ? `#L${low}` : `#L${low}-L${high}`);
    this.mark(low, high);
  }
}

// Where to open: at what the address names, else at the first error; what is live and well, at its end.
async function opening(root, data) {
  const total = Number(root.dataset.total);
  const line = root.dataset.streams.includes(",") ? 0 : Number(named()?.[1] ?? 0);
  const row = line || Number(new URLSearchParams(location.search).get("from"));
  if (row) return { row: Math.max(1, Math.min(row, total)) };
  for (let at = 0; ;) {
    const answer = await data.ask("seek", { row: at });
    if (answer?.found) return { row: answer.found, isError: true };
    if (!answer?.looked) return { row: root.dataset.tail ? total : 1, isWell: true };
    at = answer.looked;
  }
}

export async function start() {
  const root = document.querySelector("#viewer");
  const { base, total, until } = root.dataset;
  const data = new LogData(base, Number(total), until, () => {}, () => {});
  const first = await opening(root, data);
  // The server's lines stay until ours are here: nothing blinks.
  await data.read(Math.floor((first.row - 1) / BLOCK));
  new Viewer(root, data).open(first);
}
