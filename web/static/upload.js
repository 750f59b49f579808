// Uploads by raw body, one file after the other, with a progress bar. Without this the form itself uploads.
function send(form, file, row) {
  return new Promise((done) => {
    const bar = document.createElement("progress");
    const words = document.createElement("span");
    bar.max = file.size || 1;
    bar.value = 0;
    bar.setAttribute("aria-label", file.name);
    words.textContent = `${file.name}: sending`;
    row.append(words, bar);
    const fail = (text) => { bar.remove(); words.className = "bad"; words.textContent = `${file.name}: ${text}`; done(false); };
    const limit = Number(form.dataset.limit);
    if (file.size > limit) return fail(`it has ${file.size.toLocaleString("en")} bytes, the limit is ${limit.toLocaleString("en")}`);
    if (file.size === 0) return fail("it is empty (0 bytes); choose the file again");
    const request = new XMLHttpRequest();
    request.open("PUT", `${form.dataset.upload}?name=${encodeURIComponent(file.name)}`);
    request.setRequestHeader("X-CSRFToken", form.elements.csrf_token.value);
    request.setRequestHeader("Content-Type", "application/octet-stream");
    request.upload.addEventListener("progress", (event) => {
      bar.value = event.loaded;
      words.textContent = event.loaded < event.total ? `${file.name}: ${Math.floor((100 * event.loaded) / event.total)} %` : `${file.name}: being looked at`;
    });
    request.addEventListener("load", () => {
      let reply = {};
      try { reply = JSON.parse(request.responseText); } catch { /* an error page */ }
      if (request.status !== 201) return fail(reply.error ?? (request.status === 401 ? "your session has ended; sign in again" : `refused (${request.status})`));
      bar.remove();
      words.className = "good";
      words.textContent = `${reply.name}: stored, ${reply.size}, ${reply.facts.curve}`;
      done(true);
    });
    request.addEventListener("error", () => fail("the connection broke; send it again"));
    request.send(file);
  });
}

export function start() {
  for (const form of document.querySelectorAll("form[data-upload]")) {
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      const button = form.querySelector("button");
      const list = form.querySelector(".upload-list");
      const input = form.elements.file;
      button.disabled = true;
      list.replaceChildren();
      let stored = 0;
      for (const file of input.files) {
        const row = document.createElement("div");
        row.className = "upload-row";
        list.append(row);
        if (await send(form, file, row)) stored += 1;
      }
      button.disabled = false;
      if (stored && stored === input.files.length) location.reload();
    });
  }
}
