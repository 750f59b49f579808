// How much was written when, by level: a strip over the log. A click goes there, a drag shows that stretch larger.
const BINS = 160;
const HEIGHT = 40;
const SVG = "http://www.w3.org/2000/svg";

export class Strip {
  constructor(root, data, go, clock) {
    Object.assign(this, { root, data, go, clock });
    this.whole = root.parentElement.querySelector("[data-act=whole]");
    this.span = {};
    this.at = 0;
    root.addEventListener("pointerdown", (event) => { this.from = this.bin(event); root.setPointerCapture(event.pointerId); });
    root.addEventListener("pointermove", (event) => this.pointed(event));
    root.addEventListener("pointerup", (event) => this.released(event));
    root.addEventListener("pointercancel", () => { this.from = undefined; this.brush(); });
    root.addEventListener("keydown", (event) => this.key(event));
    this.whole.addEventListener("click", () => this.zoom({}));
  }

  async load() {
    const answer = await this.data.ask("density", { bins: BINS, ...this.span });
    if (!answer) return;
    this.told = answer;
    this.begin ??= answer.from;
    this.draw();
  }

  draw() {
    const most = Math.max(1, ...this.told.bars.map((bar) => bar[1]));
    const svg = document.createElementNS(SVG, "svg");
    svg.setAttribute("viewBox", `0 0 ${BINS} ${HEIGHT}`);
    svg.setAttribute("preserveAspectRatio", "none");
    svg.setAttribute("aria-hidden", "true");
    const box = (name, x, width, height) => {
      const rect = document.createElementNS(SVG, "rect");
      for (const [key, value] of Object.entries({ class: name, x, width, y: HEIGHT - height, height })) rect.setAttribute(key, value);
      svg.append(rect);
      return rect;
    };
    // By the square root, so that three errors among ten thousand lines are still seen.
    const high = (n) => (n ? Math.max(3, HEIGHT * Math.sqrt(n / most)) : 0);
    this.told.bars.forEach(([, lines, warnings, errors], i) => {
      if (lines) box("lines", i, 0.86, high(Math.max(lines, warnings + errors)));
      if (warnings || errors) box(warnings ? "warn" : "error", i, 0.86, high(warnings + errors));
      if (errors) box("error", i, 0.86, high(errors));
    });
    this.cursor = box("cursor", 0, 0.5, HEIGHT);
    this.brushed = box("brush", 0, 0, HEIGHT);
    this.root.replaceChildren(svg);
    this.whole.hidden = !("from" in this.span);
    const sum = (i) => this.told.bars.reduce((all, bar) => all + bar[i], 0);
    this.root.setAttribute("aria-valuemax", BINS - 1);
    this.root.title = `${this.clock(this.told.from)} to ${this.clock(this.told.to)}: ${sum(2).toLocaleString("en")} warnings, ${sum(3).toLocaleString("en")} errors. Drag to look closer.`;
    this.mark(this.at);
  }

  time(bin) { return this.told.from + (bin / BINS) * (this.told.to - this.told.from); }

  bin(event) {
    const box = this.root.getBoundingClientRect();
    return Math.max(0, Math.min(BINS - 1, Math.floor(((event.clientX - box.left) / box.width) * BINS)));
  }

  mark(bin) {
    this.at = bin;
    const [, lines, warnings, errors] = this.told.bars[bin];
    this.cursor.setAttribute("x", bin);
    this.root.setAttribute("aria-valuenow", bin);
    this.root.setAttribute("aria-valuetext", `${this.clock(this.time(bin))}: ${lines} lines, ${warnings} warnings, ${errors} errors`);
  }

  // The time of what is in sight.
  follow(ms) {
    if (!this.told || !ms) return;
    const share = (ms - this.told.from) / (this.told.to - this.told.from);
    if (share >= 0 && share <= 1) this.mark(Math.min(BINS - 1, Math.floor(share * BINS)));
  }

  brush(from = 0, to = 0) {
    this.brushed?.setAttribute("x", Math.min(from, to));
    this.brushed?.setAttribute("width", Math.abs(to - from));
  }

  pointed(event) {
    if (!this.told) return;
    const bin = this.bin(event);
    if (this.from !== undefined) this.brush(this.from, bin + (bin >= this.from ? 1 : 0));
  }

  released(event) {
    if (!this.told || this.from === undefined) return;
    const [first, last] = [this.from, this.bin(event)].sort((a, b) => a - b);
    this.from = undefined;
    this.brush();
    if (last - first < 2) { this.mark(first); this.go(this.told.bars[first][0]); }
    else this.zoom({ from: Math.floor(this.time(first)), to: Math.ceil(this.time(last + 1)) });
  }

  async zoom(span) {
    this.span = span;
    this.at = 0;
    await this.load();
    if ("from" in span) this.go(this.told.bars[0][0]);
  }

  key(event) {
    if (!this.told) return;
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -BINS, End: BINS }[event.key];
    if (step) { this.mark(Math.max(0, Math.min(BINS - 1, this.at + step))); this.go(this.told.bars[this.at][0]); }
    else if (event.key === "+") this.zoom({ from: Math.floor(this.time(Math.max(0, this.at - 8))), to: Math.ceil(this.time(Math.min(BINS, this.at + 9))) });
    else if (event.key === "-" || event.key === "Escape") this.zoom({});
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}
