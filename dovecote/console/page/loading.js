// Without one of its files the page would say "connecting…" for ever. It loads again instead, until it is whole.
const AGAIN = 5000;

addEventListener("error", ({ target }) => {
  if (!(target instanceof HTMLScriptElement)) return;
  setTimeout(() => location.reload(), AGAIN);
  addEventListener("DOMContentLoaded", () => {
    const stale = document.getElementById("stale");
    stale.textContent = "The console's server did not give a file of this page. The page loads again in five seconds.";
    stale.hidden = false;
    document.getElementById("seen").textContent = "not connected";
  });
}, true);
