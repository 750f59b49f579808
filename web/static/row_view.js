// What a row of the log viewer looks like. All that a machine wrote goes through textContent, and only there; the styles of
// its pieces are names of ours, made by the server (logs/ansi.py).
const LEVELS = ["info", "warn", "error"];
const KEPT = 200;
const two = (n) => String(n).padStart(2, "0");

function element(name, className = "", text = "") {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.textContent = text;
  return made;
}

function cell(made, role = "cell") {
  made.setAttribute("role", role);
  return made;
}

export class RowView {
  // `begin`: the time that elapsed time counts from, in ms.
  constructor(data, streams, base) {
    Object.assign(this, { data, streams, base, mode: "off", marked: [0, 0], begin: 0 });
    this.drawn = new Map();
  }

  get merged() { return this.streams.length > 1; }

  clock(ms, mode = this.mode) {
    if (mode === "elapsed") {
      const s = Math.max(0, Math.floor((ms - this.begin) / 1000));
      return `${Math.floor(s / 3600)}:${two(Math.floor(s / 60) % 60)}:${two(s % 60)}`;
    }
    const t = new Date(ms);
    return mode === "local" ? `${two(t.getHours())}:${two(t.getMinutes())}:${two(t.getSeconds())}` : t.toISOString().slice(11, 19);
  }

  // The element of row n; the same one as long as nothing about it changed.
  draw(n) {
    const row = this.data.row(n);
    const isMarked = n >= this.marked[0] && n <= this.marked[1];
    const held = this.drawn.get(n);
    if (held && held.row === row && held.isMarked === isMarked && held.mode === this.mode) return held.made;
    const made = this.make(n, row);
    if (isMarked) { made.classList.add("marked"); made.setAttribute("aria-selected", "true"); }
    this.drawn.set(n, { row, isMarked, mode: this.mode, made });
    return made;
  }

  forget(first = Infinity, last = -Infinity) {
    for (const n of this.drawn.keys()) if (n < first - KEPT || n > last + KEPT) this.drawn.delete(n);
  }

  make(n, row) {
    const [, stream, number, level, ms, bytes, text] = row ?? [n, 0, this.merged ? "" : n, 0, 0, 0, row === null ? "not in the archive" : ""];
    const gap = Array.isArray(text) && text.length > 0 && text.every(([, styles]) => styles === "gap");
    const kind = row === null ? "never" : row === undefined ? "coming" : gap ? "gap-row" : `is-${LEVELS[level]}`;
    const made = cell(element("div", `row ${kind}`), "row");
    made.setAttribute("aria-rowindex", n);
    made.dataset.row = n;
    const link = cell(element("a", "", gap ? "" : number), "rowheader");
    link.tabIndex = -1;
    link.href = this.merged ? `${this.base.replace(/[^/]*$/, this.streams[stream])}#L${number}` : `#L${n}`;
    made.append(link);
    if (this.mode !== "off") {
      const time = cell(element("time", "", ms ? this.clock(ms) : ""));
      if (ms) time.title = new Date(ms).toISOString();
      made.append(time);
    }
    if (this.merged) made.append(cell(element("b", `tag tag-${stream}`, row ? this.streams[stream] : "")));
    made.append(this.words(text, level, bytes));
    return made;
  }

  words(text, level, bytes) {
    const words = cell(element("span", "words"));
    if (level > 0) words.append(element("i", "hidden-label", `${LEVELS[level]}: `));
    for (const [piece, styles] of Array.isArray(text) ? text : [[text, ""]]) words.append(styles ? element("span", styles, piece) : piece);
    if (bytes) words.append(element("b", "attention", ` … ${bytes.toLocaleString("en")} bytes in all; the rest is in the download`));
    return words;
  }
}
