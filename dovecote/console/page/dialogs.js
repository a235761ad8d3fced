// The token and the questions: native dialogs, which keep the keyboard and end with Escape.
import { keep, kept } from "./asking.js";
import { by, make } from "./make.js";

const waiting = new Map(); // what wants the answer of a dialog

function answered(dialog, answer) {
  waiting.get(dialog)?.(answer);
  waiting.delete(dialog);
}

// A browser tells of a closed dialog a little later, and it may be open again by then, with another question.
function asked(dialog) {
  if (!dialog.onclose) dialog.onclose = () => { if (!dialog.open) answered(dialog, dialog.returnValue); };
  answered(dialog, dialog.open ? "" : dialog.returnValue);
  return new Promise((resolve) => {
    waiting.set(dialog, resolve);
    dialog.returnValue = "";
    if (!dialog.open) dialog.showModal();
  });
}

// Yield true once a token was given.
export async function wantToken(why) {
  const dialog = by("token-dialog");
  if (dialog.open) return false;
  by("token-why").textContent = why;
  by("token").value = "";
  // A browser presses the first button at Enter, which is Cancel: this says what Enter means.
  by("token").onkeydown = (event) => {
    if (event.key === "Enter") { event.preventDefault(); by("token-use").click(); }
  };
  const answer = asked(dialog);
  by("token").focus();
  if ((await answer) !== "use") return false;
  const token = by("token").value.trim();
  by("token").value = "";
  const changed = token !== kept();
  keep(token);
  return changed || token !== "";
}

export async function sure({ title, text, list, yes, danger = false }) {
  by("question-title").textContent = title;
  by("question-text").textContent = text;
  by("question-list").replaceChildren(...list.map((each) => make("li", { text: each })));
  by("question-yes").textContent = yes;
  by("question-yes").className = danger ? "first danger" : "first";
  const answer = asked(by("question"));
  by("question-no").focus();
  return (await answer) === "yes";
}
