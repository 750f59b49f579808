// Virtual rows: only those in sight are in the document, however long the log. The row on top is the anchor; the scroll bar
// follows it. Browsers cap heights, so that of a very long log is scaled: small moves are by pixels, jumps by share.
const ROW = 20;
const MAX_HEIGHT = 8_000_000;
const SETTLE_MS = 150;

export class Rows {
  // `draw(n)` makes the element of row n; `seen(first, last)` is told what is in sight.
  constructor(scroller, draw, seen) {
    Object.assign(this, { scroller, draw, seen });
    this.spacer = document.createElement("div");
    this.pane = document.createElement("div");
    this.body = document.createElement("div");
    this.pane.className = "pane";
    this.body.className = "rows";
    this.body.setAttribute("role", "rowgroup");
    this.pane.append(this.body);
    this.spacer.append(this.pane);
    scroller.replaceChildren(this.spacer);
    this.total = 0;
    this.top = 1;
    this.shift = 0;
    this.last = 0;
    scroller.addEventListener("scroll", () => this.scrolled());
    new ResizeObserver(() => this.render()).observe(scroller);
  }

  get height() { return this.scroller.clientHeight; }
  get inView() { return Math.max(1, Math.floor(this.height / ROW)); }
  get lastTop() { return Math.max(1, this.total - this.inView + 1); }
  get atEnd() { return this.bottom >= this.total; }

  setTotal(total) {
    if (total === this.total) return;
    this.total = total;
    this.spacer.style.height = `${Math.max(this.height, Math.min(total * ROW, MAX_HEIGHT))}px`;
    this.settle();
  }

  // Row n on top, in the middle, or the last one at the bottom.
  show(n, where = "top") {
    this.top = Math.max(1, Math.min(this.total, where === "middle" ? n - Math.floor(this.inView / 3) : n));
    this.shift = 0;
    this.render();
    this.settle(true);
  }

  showEnd() { this.show(this.total); }

  isInSight(n) { return n >= this.top + (this.shift > 0 ? 1 : 0) && n < this.bottom; }

  scrolled() {
    const at = this.scroller.scrollTop;
    const by = at - this.last;
    if (!by) return;
    this.last = at;
    if (Math.abs(by) < 1.5 * this.height) this.move(by);
    else {
      const share = at / Math.max(1, this.scroller.scrollHeight - this.height);
      const exact = 1 + share * (this.lastTop - 1);
      this.top = Math.floor(exact);
      this.shift = (exact - this.top) * ROW;
      this.render();
    }
    const edge = this.height;
    if (at < edge || at > this.scroller.scrollHeight - this.height - edge) this.settle();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.settle(), SETTLE_MS);
  }

  // By pixels; rows are as high as they are drawn.
  move(by) {
    this.shift += by;
    while (this.shift < 0 && this.top > 1) { this.top -= 1; this.shift += this.heightOf(this.top); }
    this.shift = Math.max(0, this.shift);
    for (let h = this.heightOf(this.top); this.shift >= h && this.top < this.total; h = this.heightOf(this.top)) {
      this.shift -= h;
      this.top += 1;
    }
    this.render();
  }

  get wraps() { return this.body.classList.contains("wrap"); }

  heightOf(n) {
    if (!this.wraps) return ROW;
    const shown = this.elements?.get(n);
    if (shown) return shown.offsetHeight;
    const element = this.draw(n);
    this.body.append(element);
    const height = element.offsetHeight;
    element.remove();
    return height;
  }

  render() {
    if (!this.height) return;
    const first = this.top;
    this.elements = new Map();
    const shown = [];
    for (let n = first; n <= this.total && shown.length <= this.inView + 1; n += 1) {
      const element = this.draw(n);
      this.elements.set(n, element);
      shown.push(element);
    }
    this.place(shown);
    this.pullDown();
    this.body.style.transform = `translateY(${-Math.round(this.shift)}px)`;
    const end = this.height + this.shift;
    let n = first;
    for (let y = 0; n <= this.total && this.elements.has(n) && (y += this.elements.get(n).offsetHeight) <= end + 1; ) n += 1;
    this.bottom = n - 1;
    this.seen(first, first + shown.length - 1);
  }

  // What stays is not touched, so that a selection and the focus live on.
  place(shown) {
    const kept = new Set(shown);
    for (const element of [...this.body.children]) if (!kept.has(element)) element.remove();
    let at = this.body.firstChild;
    for (const element of shown) {
      if (element === at) at = at.nextSibling;
      else this.body.insertBefore(element, at);
    }
  }

  // No empty space below the last row while there are rows above.
  pullDown() {
    if (!this.elements.has(this.total)) return;
    let space = this.height + this.shift - this.body.offsetHeight;
    if (space <= 0) return;
    const used = Math.min(space, this.shift);
    this.shift -= used;
    space -= used;
    while (space > 0 && this.top > 1) {
      this.top -= 1;
      const element = this.draw(this.top);
      this.elements.set(this.top, element);
      this.body.prepend(element);
      const height = element.offsetHeight;
      this.shift += Math.max(0, height - space);
      space -= height;
    }
  }

  // The scroll bar to where the rows are, unless a person moved it just now and we have yet to hear of it.
  settle(force = false) {
    if (!force && this.scroller.scrollTop !== this.last) { this.scrolled(); return; }
    const room = this.scroller.scrollHeight - this.height;
    const share = this.atEnd && this.total ? 1 : Math.min(1, (this.top - 1 + this.shift / ROW) / Math.max(1, this.lastTop - 1));
    const at = this.top === 1 && !this.shift ? 0 : share * room;
    if (Math.abs(at - this.scroller.scrollTop) > 1) this.scroller.scrollTop = at;
    this.last = this.scroller.scrollTop;
  }
}
