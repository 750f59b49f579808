// The lines of a view as the server has them: read in blocks where they are looked at, kept, and joined with the live tail.
export const BLOCK = 250;
const KEPT_BLOCKS = 80;
const AT_ONCE = 2;
const RETRY_MS = 2000;

// A row: [row, stream, number, level, t_ms, bytes, text or [[text, styles], ...]]
export class LogData {
  constructor(base, total, until, changed, away) {
    Object.assign(this, { base, until, changed, away });
    this.archived = this.total = total;
    this.open = false;
    this.blocks = new Map();
    this.fresh = new Map();
    this.wanted = [];
    this.asking = new Set();
    this.generation = 0;
  }

  // undefined: not here yet; null: the line never came.
  row(n) {
    const block = this.blocks.get(Math.floor((n - 1) / BLOCK));
    const found = block?.rows.get(n) ?? this.fresh.get(n);
    if (found) return found;
    return block && n <= block.upto ? null : undefined;
  }

  address(what, query) {
    return `${this.base}/${what}?${new URLSearchParams({ ...query, until: this.until })}`;
  }

  // An answer, or null while the server is away (said by `away`).
  async ask(what, query) {
    const reply = await fetch(this.address(what, query), { headers: { Accept: "application/json" } }).catch(() => null);
    if (reply?.ok && !reply.redirected) { this.away(""); return reply.json(); }
    if (reply?.redirected || reply?.status === 401) this.away("Your session has ended: sign in again");
    else if (reply?.status === 503) this.away("The archive does not answer; trying again");
    else if (reply) this.away(`The server refused (${reply.status}); reload the page`);
    else this.away("No connection; trying again");
    return null;
  }

  // Have these rows read, and no others any more.
  want(first, last) {
    this.wanted = [];
    for (let i = Math.floor((first - 1) / BLOCK); i <= Math.floor((Math.min(last, this.archived) - 1) / BLOCK); i += 1) this.wanted.push(i);
    this.pump();
  }

  pump() {
    for (const i of this.wanted) {
      if (this.asking.size >= AT_ONCE) return;
      const block = this.blocks.get(i);
      if (this.asking.has(i) || (block && block.upto >= Math.min((i + 1) * BLOCK, this.archived))) continue;
      this.read(i);
    }
  }

  async read(i) {
    const generation = this.generation;
    this.asking.add(i);
    const answer = await this.ask("rows", { row: i * BLOCK + 1, count: BLOCK });
    if (generation !== this.generation) return;
    if (!answer) {
      setTimeout(() => { this.asking.delete(i); this.pump(); }, RETRY_MS);
      return;
    }
    this.asking.delete(i);
    this.take(i, answer);
    this.pump();
  }

  take(i, answer) {
    const upto = Math.min((i + 1) * BLOCK, answer.total);
    this.blocks.delete(i);
    this.blocks.set(i, { rows: new Map(answer.rows.map((row) => [row[0], row])), upto, open: answer.open && upto === answer.total });
    for (const row of answer.rows) this.fresh.delete(row[0]);
    if (this.blocks.size > KEPT_BLOCKS) this.blocks.delete(this.blocks.keys().next().value);
    this.known(answer.total);
    this.changed();
  }

  // The archive has grown (or the tail has): nothing is told twice, since rows go by number.
  known(total) {
    this.archived = Math.max(this.archived, total);
    this.total = Math.max(this.total, this.archived);
  }

  // Lines of the live tail: [number, text], before they are in the archive.
  add(lines) {
    for (const [n, text] of lines) {
      if (n <= this.archived) continue;
      this.fresh.set(n, [n, 0, n, 0, 0, 0, text]);
      this.total = Math.max(this.total, n);
    }
    while (this.fresh.size > 20000) this.fresh.delete(this.fresh.keys().next().value);
  }

  // What the archive holds by now. Of several streams the rows are counted anew.
  async refresh(merged) {
    const reply = await fetch(`${this.base}/rows?${new URLSearchParams({ row: this.archived + 1, count: BLOCK })}`).catch(() => null);
    if (!reply?.ok || reply.redirected) return this.away("No connection; trying again");
    this.away("");
    const answer = await reply.json();
    if (merged && answer.until !== this.until) {
      this.generation += 1;
      this.asking.clear();
      this.blocks.clear();
    }
    // A last line that was not finished is asked for again once there is more.
    if (answer.until !== this.until) for (const block of this.blocks.values()) if (block.open) Object.assign(block, { open: false, upto: block.upto - 1 });
    this.until = answer.until;
    this.known(answer.total);
    this.changed();
    return undefined;
  }
}
