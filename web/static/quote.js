// The sum of the new-run form follows what is typed; the server adds it up.
export function start() {
  const form = document.querySelector("form[data-quote]");
  const sum = document.querySelector("#sum");
  let timer, latest = 0;
  for (const button of form.querySelectorAll(".no-script")) button.hidden = true;
  const add = async () => {
    const mine = ++latest;
    const fields = new FormData(form);
    fields.delete("csrf_token");
    const reply = await fetch(`${form.dataset.quote}?${new URLSearchParams(fields)}`).catch(() => null);
    if (reply?.ok && !reply.redirected && mine === latest) sum.innerHTML = await reply.text();
  };
  form.addEventListener("input", (event) => {
    clearTimeout(timer);
    timer = setTimeout(add, 250);
    // Another provider has other offers: the server draws the form again, with what was typed.
    if (event.target.name === "provider") {
      for (const offer of form.querySelectorAll("[name=offer]")) offer.remove();
      form.requestSubmit(form.querySelector("button[value=sum]"));
      return;
    }
    // What is filled in is what is meant.
    if (["circuit_kind", "circuit_size", "circuit_curve"].includes(event.target.name)) form.elements.source.value = "builtin";
    if (["zkey_id", "witness_ids"].includes(event.target.name)) form.elements.source.value = "own";
  });
}
