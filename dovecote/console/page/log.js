// What was done through this console, and by whom.
import { ask } from "./asking.js";
import { clock, make, note, put } from "./make.js";
import { table } from "./tables.js";

const LIMIT = 500;

export function open(root) {
  const heading = make("h1", { text: "Log", tabindex: "-1" });
  const error = make("div");
  const list = table("Log", [
    { title: "When" }, { title: "Who" , long: true }, { title: "Did" }, { title: "To what", heads: true, long: true }, { title: "Outcome", long: true },
  ], (entry, cells) => {
    const shown = [clock(entry.at), entry.by ?? "", entry.action, entry.what, entry.outcome];
    shown.forEach((text, at) => put(cells[at], String(text ?? "–")));
  }, { empty: "Nobody did anything yet. What is requeued and dropped here is written down." });
  root.replaceChildren(make("section", { class: "top" }, heading,
    make("p", { class: "quiet", text: "What was done through this console, newest first." }), error, list.element));
  let closed = false;
  ask(`/api/log?limit=${LIMIT}`).then(({ entries }) => { if (!closed) list.update(entries); },
    (problem) => error.replaceChildren(note(problem.message, "bad")));
  return { title: "Log", heading, update() {}, close() { closed = true; } };
}
