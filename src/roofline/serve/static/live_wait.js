/** While a run is read: shows how far it is and loads the page again when it is done, or, after an error, when the run has changed. */
const main = document.getElementById("waiting");
const EVERY_MS = 400;

/** Follow the state of the reading until it ends, one way or the other. */
async function follow(address) {
  for (;;) {
    try {
      const answer = await fetch(address, { cache: "no-store" });
      const told = await answer.json();
      if (!answer.ok || !["waiting", "reading"].includes(told.state)) {
        location.reload();
        return;
      }
      show(told.progress);
    } catch {
      word.textContent = "no response from the server; it may have stopped";
    }
    await new Promise((done) => setTimeout(done, EVERY_MS));
  }
}

const word = document.getElementById("word");
const bar = document.getElementById("progress");

function show(progress) {
  word.textContent = progress === null ? "queued" : progress >= 1 ? "analyzing…" : `reading… ${Math.round(100 * progress)}%`;
  bar.value = progress ?? 0;
}

/** The button of the page, Cancel or Try again: the server does it, then the page shows what came of it. */
const button = document.getElementById("act");
button?.addEventListener("click", async () => {
  button.disabled = true;
  await fetch(button.dataset.address, { method: "POST" }).catch(() => null);
  location.reload();
});

if (main.dataset.state) follow(main.dataset.state);
if (main.dataset.events) new EventSource(main.dataset.events).addEventListener("message", () => location.reload());
