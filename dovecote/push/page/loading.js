// Without its script the page would say "connecting…" for ever. It loads again instead, until the script comes.
const AGAIN = 5000;

addEventListener("error", ({ target }) => {
  if (!(target instanceof HTMLScriptElement) || document.readyState === "complete") return;
  setTimeout(() => location.reload(), AGAIN);
  addEventListener("DOMContentLoaded", () => {
    const error = document.getElementById("error");
    error.textContent = "The server did not give a file of this page. The page loads again in five seconds.";
    error.hidden = false;
    document.getElementById("state").textContent = "not connected";
  });
}, true);
