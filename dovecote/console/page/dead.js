// Dead letters of all parts and events that relays parked: one list, and what may be done about them.
import { ask, query } from "./asking.js";
import { sure } from "./dialogs.js";
import { clock, make, many, note, plain, put } from "./make.js";
import { linkTo, linkWith } from "./routes.js";
import { table } from "./tables.js";

const FIELDS = [["part", "Part"], ["topic", "Topic"], ["key", "Key"], ["id", "Event's id"], ["type", "Type"], ["reason", "Reason contains"]];
const TIMES = [["since", "Since"], ["until", "Until"]];
const LIMIT = 100;

const TIME = /\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d)/g;

const keyOf = (letter) => `${letter.part}\n${letter.place}`;

// What is sent is ISO 8601 in UTC; what is typed is local time.
const utc = (local) => { const at = new Date(local); return local && !Number.isNaN(at.getTime()) ? at.toISOString() : ""; };
const local = (iso) => {
  const at = new Date(iso);
  if (!iso || Number.isNaN(at.getTime())) return "";
  return new Date(at - at.getTimezoneOffset() * 60000).toISOString().slice(0, 19);
};

function payload(text) {
  if (text === null || text === undefined) return "no value";
  if (typeof text !== "string") return JSON.stringify(text, null, 2);
  try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text; }
}

const headersOf = (headers) => (Array.isArray(headers) ? headers : Object.entries(headers ?? {}));

export function open(root, { filters }, app) {
  const heading = make("h1", { text: "Dead letters and parked events", tabindex: "-1" });
  const inputs = new Map();
  const field = (name, label, type, value) => {
    const input = make("input", { type, name, autocomplete: "off", spellcheck: "false", maxlength: "500", step: type === "datetime-local" ? "1" : null });
    input.value = value;
    inputs.set(name, input);
    return make("label", {}, make("span", { text: label }), input);
  };
  const form = make("form", { class: "filters", role: "search", "aria-label": "Filter the letters", onsubmit: apply },
    FIELDS.map(([name, label]) => field(name, label, "text", filters[name] ?? "")),
    TIMES.map(([name, label]) => field(name, label, "datetime-local", local(filters[name]))),
    make("div", { class: "row" }, make("button", { type: "submit", class: "first", text: "Show" }), make("a", { href: "#/dead", class: "button", text: "Clear" })));
  const said = make("p", { class: "quiet", role: "status", text: "Asking…" });
  const failures = make("div", { class: "stack" });
  const outcome = make("section", { class: "outcome", tabindex: "-1", "aria-label": "Outcome", hidden: true });
  const requeue = make("button", { type: "button", text: "Requeue", onclick: () => act("requeue") });
  const drop = make("button", { type: "button", class: "danger", text: "Drop", onclick: () => act("drop") });
  const every = make("input", { type: "checkbox", id: "every", onchange: () => { for (const each of letters) mark(each, every.checked); show(); } });
  const actions = make("div", { class: "row", role: "group", "aria-label": "What to do with the chosen letters" },
    make("label", { class: "inline", for: "every" }, every, " All shown"), requeue, drop);
  const readOnly = make("p", { class: "quiet" });
  const more = make("button", { type: "button", text: "Older ones", hidden: true, onclick: () => look(next) });
  const chosen = new Set();
  const detail = make("section", { class: "card", tabindex: "-1", hidden: true, "aria-label": "The chosen letter" });
  let letters = [], next = null, closed = false, opener = null, writing = null;
  const listed = table("Dead letters and parked events", [
    { title: "Choose", unseen: true }, { title: "Given up" }, { title: "Event", heads: true, long: true },
    { title: "From", wide: true, long: true }, { title: "Reason", long: true }, { title: "Attempts", number: true, wide: true },
  ], fill, { keyOf, empty: "No letter matches." });
  root.replaceChildren(make("section", { class: "top" }, heading, form, said), failures, outcome,
    make("section", { "aria-label": "Letters" }, make("div", { class: "bar" }, actions, readOnly), listed.element, more), detail);

  function apply(event) {
    event.preventDefault();
    const wanted = {};
    for (const [name, input] of inputs) wanted[name] = input.type === "datetime-local" ? utc(input.value) : input.value.trim();
    const link = linkWith("dead", wanted);
    if (link === location.hash) look(null);
    else location.hash = link;
  }

  function mark(letter, on) {
    if (on) chosen.add(keyOf(letter));
    else chosen.delete(keyOf(letter));
  }

  function fill(letter, cells) {
    if (!cells[0].firstChild) {
      const box = make("input", { type: "checkbox", onchange: () => { mark(letter, box.checked); tell(); } });
      cells[0].append(box);
      box.setAttribute("aria-label", `Choose ${letter.id ?? letter.place}`);
      const open = make("button", { type: "button", class: "link mono", onclick: () => look_into(letter, open) });
      open.textContent = letter.id ?? letter.place;
      cells[2].append(open, make("div", { class: "sub", text: letter.type ?? "" }));
      cells[1].append(make("span", { text: clock(letter.at) }));
      cells[3].append(make("a", { href: linkTo(letter.part), text: letter.part }), make("div", { class: "sub", text: `${letter.topic ?? "–"} · key ${letter.key ?? "none"}` }));
      cells[4].append(make("span", { class: "clamp", text: letter.reason ?? "" }));
      put(cells[5], plain(letter.attempts));
    }
    cells[0].firstChild.checked = chosen.has(keyOf(letter));
  }

  function look_into(letter, from) {
    opener = from;
    const pairs = [["part", letter.part], ["place", letter.place], ["topic", letter.topic], ["key", letter.key], ["type", letter.type], ["given up", clock(letter.at)], ["attempts", plain(letter.attempts)]];
    const close = make("button", { type: "button", text: "Close", onclick: () => { detail.hidden = true; if (opener?.isConnected) opener.focus(); } });
    detail.replaceChildren(
      make("div", { class: "title" }, make("h2", { class: "mono long", text: letter.id ?? letter.place }), close),
      make("p", { class: "reason", text: letter.reason ?? "" }),
      make("dl", { class: "facts" }, pairs.map(([name, value]) => make("div", {}, make("dt", { text: name }), make("dd", { text: value ?? "none" })))),
      letter.id ? make("p", {}, make("a", { href: linkWith("find", { id: letter.id }), text: "The life of this event" })) : "",
      make("h3", { text: "Value" }), make("pre", { tabindex: "0", "aria-label": "Value", text: payload(letter.value) }),
      make("h3", { text: "Headers" }), make("dl", { class: "facts mono" }, headersOf(letter.headers).map(([name, value]) => make("div", {}, make("dt", { text: name }), make("dd", { text: value ?? "null" })))));
    detail.hidden = false;
    detail.focus();
    detail.scrollIntoView({ block: "nearest" });
  }

  function tell() {
    const able = (action) => letters.filter((each) => chosen.has(keyOf(each)) && (each.actions ?? []).includes(action)).length;
    for (const [button, action, word] of [[requeue, "requeue", "Requeue"], [drop, "drop", "Drop"]]) {
      put(button, chosen.size ? `${word} ${plain(able(action))}` : word);
      button.disabled = !able(action);
    }
    every.checked = letters.length > 0 && chosen.size >= letters.length;
  }

  function show() {
    writing = app.may("write");
    actions.hidden = !app.may("write") || !letters.length;
    put(readOnly, app.may("write") ? "" : "This page only shows: to requeue and drop needs write = true and a token with the right write.");
    listed.update(letters);
    for (const box of listed.element.querySelectorAll("input[type=checkbox]")) box.hidden = !app.may("write");
    tell();
  }

  async function look(after = null) {
    put(said, "Asking…");
    more.disabled = true;
    try {
      const told = await ask(`/api/dead${query({ ...filters, limit: LIMIT, after: after ?? "" })}`);
      if (closed) return;
      if (!after) { letters = []; chosen.clear(); listed.first(); }
      const known = new Set(letters.map(keyOf));
      letters = letters.concat(told.letters.filter((each) => !known.has(keyOf(each))));
      next = told.next;
      more.hidden = !next;
      failures.replaceChildren(...(told.failures ?? []).map(({ part, error }) => note(`${part} could not be asked: ${error}`, "bad")));
      put(said, `${many(letters.length, "letter")}${next ? ", and there are older ones" : ""}. Looked at ${(told.looked ?? "all that is kept").replace(TIME, clock)}.`);
      show();
    } catch (error) {
      put(said, "");
      failures.replaceChildren(note(error.message, "bad"));
    }
    more.disabled = false;
  }

  async function act(action) {
    const wanted = letters.filter((each) => chosen.has(keyOf(each)) && (each.actions ?? []).includes(action));
    if (!wanted.length) return;
    const dropped = action === "drop";
    const list = wanted.slice(0, 5).map((each) => `${each.id ?? each.place} of ${each.part}`);
    if (wanted.length > 5) list.push(`and ${plain(wanted.length - 5)} more`);
    const agreed = await sure({
      title: `${dropped ? "Drop" : "Requeue"} ${many(wanted.length, "letter")}?`,
      text: dropped ? "Nobody will handle a dropped letter any more. You cannot take this back." : "Each letter goes back to the part that gave it up, which handles it again.",
      list, yes: `${dropped ? "Drop" : "Requeue"} ${plain(wanted.length)}`, danger: dropped,
    });
    if (!agreed || closed) return;
    requeue.disabled = drop.disabled = true;
    try {
      const told = await ask(`/api/dead/${action}`, { method: "POST", body: { letters: wanted.map(({ part, place }) => ({ part, place })) } });
      const gone = new Set(told.done.map(keyOf));
      letters = letters.filter((each) => !gone.has(keyOf(each)));
      for (const key of gone) chosen.delete(key);
      report(dropped ? "dropped" : "requeued", told);
    } catch (error) {
      outcome.replaceChildren(note(error.message, "bad"));
    }
    outcome.hidden = false;
    show();
    outcome.focus();
  }

  function report(word, { done, failed, note: lacking }) {
    outcome.replaceChildren(
      make("h2", { text: `${many(done.length, "letter was", "letters were")} ${word}${failed.length ? `, ${plain(failed.length)} failed` : ""}` }),
      make("ul", {}, failed.slice(0, 100).map((each) => make("li", { class: "bad", text: `${each.part}, ${each.place}: ${each.error}` })),
        done.slice(0, 20).map((each) => make("li", { text: `${each.part}, ${each.place}: ${each.what}` }))),
      done.length > 20 ? make("p", { class: "quiet", text: `and ${plain(done.length - 20)} more; the log has all` }) : "",
      lacking ? note(lacking, "bad") : "");
  }
  look();
  return { title: "Dead letters", heading, update() { if (app.may("write") !== writing) show(); }, close() { closed = true; } };
}
