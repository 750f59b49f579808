// The live end of a log: lines by server-sent events until they are in the archive, which is asked for them every 2 s.
const REFRESH_MS = 2000;
const RETRY_MS = 15000;

export class Tail {
  constructor(address, streams, data, { grown, away }) {
    Object.assign(this, { address, streams, data, grown, away });
    this.position = "";
    this.ended = false;
    document.addEventListener("visibilitychange", () => (document.hidden ? this.close() : this.open()));
    addEventListener("pagehide", () => this.close());
    addEventListener("pageshow", () => this.open());
    this.open();
    this.refresh();
  }

  get merged() { return this.streams.length > 1; }

  // A hidden tab gives its connection up: browsers allow six to a host. The position makes it go on without a gap.
  open() {
    if (this.ended || this.source || document.hidden) return;
    const after = this.position ? `?after=${encodeURIComponent(this.position)}` : "";
    const source = this.source = new EventSource(this.address + after);
    const on = (name, act) => source.addEventListener(name, (event) => { this.position = event.lastEventId || this.position; act(JSON.parse(event.data)); });
    source.addEventListener("open", () => this.away(""));
    on("lines", (lines) => {
      if (this.merged) return; // their rows are counted by the archive
      this.data.add(lines.filter(([stream]) => stream === this.streams[0]).map(([, n, text]) => [n, text]));
      this.grown();
    });
    on("notice", ({ text }) => this.away(text));
    on("part", () => {});
    on("reset", () => {});
    on("end", ({ why }) => {
      this.close();
      this.ended = true;
      this.away(why === "ended" ? "" : "Your session has ended: sign in again");
    });
    source.addEventListener("error", () => {
      this.away("Reconnecting: new lines come a little later");
      if (source.readyState !== EventSource.CLOSED) return;
      this.close();
      setTimeout(() => this.open(), RETRY_MS);
    });
  }

  close() {
    this.source?.close();
    this.source = undefined;
  }

  async refresh() {
    const before = this.data.archived;
    if (!document.hidden) {
      await this.data.refresh(this.merged);
      this.grown();
    }
    // After the end too, until the archive has all that was told.
    if (!this.ended || this.data.fresh.size || this.data.archived > before) setTimeout(() => this.refresh(), REFRESH_MS);
  }
}
