// Permalinks to lines: click a number, shift-click a second one, `#L120-L134`.
const range = () => /^#L(\d+)(?:-L(\d+))?$/.exec(location.hash);

function mark() {
  for (const row of document.querySelectorAll(".row.marked")) row.classList.remove("marked");
  const found = range();
  if (!found) return;
  const first = Number(found[1]);
  const last = Number(found[2] ?? first);
  const log = document.querySelector(".log[data-lines]");
  const start = document.getElementById(`L${first}`);
  if (!start) {
    // Another page holds the line: the fragment never reaches the server, so ask for that page.
    const size = Number(log.dataset.page);
    const from = Math.floor((first - 1) / size) * size + 1;
    const query = new URLSearchParams(location.search);
    if (Number(query.get("from") ?? 1) !== from) location.replace(`?from=${from}${location.hash}`);
    return;
  }
  for (let n = first; n <= Math.min(last, first + 5000); n += 1) document.getElementById(`L${n}`)?.classList.add("marked");
  start.scrollIntoView({ block: "center" });
}

export function start() {
  document.querySelector(".log[data-lines]").addEventListener("click", (event) => {
    const link = event.target.closest(".row > a");
    const found = range();
    if (!link || !event.shiftKey || !found) return;
    event.preventDefault();
    const [low, high] = [Number(found[1]), Number(link.textContent)].sort((a, b) => a - b);
    history.replaceState(null, "", `#L${low}-L${high}`);
    mark();
  });
  addEventListener("hashchange", mark);
  mark();
}
