// The console's page: one view at a time, by the fragment of the address, over a flow that is asked again and again.
import { ask, kept } from "./asking.js";
import * as dead from "./dead.js";
import { wantToken } from "./dialogs.js";
import * as find from "./find.js";
import * as flow from "./flow.js";
import * as log from "./log.js";
import { by, clock, make, note, put } from "./make.js";
import * as part from "./part.js";
import { route } from "./routes.js";
import { announcer } from "./troubles.js";

const VIEWS = { flow, part, dead, find, log };
const STALE = 3; // missed looks after which what is shown is old

const app = {
  flow: null,
  me: null,
  stale: false,
  blind: new Set(),
  // Whether the state of a part is of another time: the server is away, or its source could not be asked.
  doubtful(id, group) {
    if (app.stale) return true;
    for (const source of app.blind) if (id === source || group === source || id.startsWith(`${source}/`)) return true;
    return false;
  },
  may: (right) => Boolean(app.me?.rights?.includes(right)) && (right !== "write" || app.flow?.write !== false),
};

const announce = announcer(by("news"));
let view = null, timer = null, heard = null, looking = false, declined = false;

function go(first = false) {
  const where = route();
  view?.close();
  const root = by("view");
  const made = VIEWS[where.view];
  view = made ? made.open(root, where, app) : lost(root, where);
  for (const link of document.querySelectorAll("header nav a")) {
    if (link.dataset.view === where.view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = view.title === "Flow" ? "Dovecote console" : `${view.title} · Dovecote console`;
  if (app.flow) view.update(app.flow);
  if (!first) { view.heading.focus({ preventScroll: true }); scrollTo(0, 0); }
}

function lost(root, { view: name }) {
  const heading = make("h1", { text: "There is no such view", tabindex: "-1" });
  root.replaceChildren(make("section", { class: "top" }, heading, note(`The link names ${name}. The views are above.`)));
  return { title: "No such view", heading, update() {}, close() {} };
}

async function look() {
  if (looking) return;
  looking = true;
  try {
    const told = await ask("/api/flow");
    heard = Date.now();
    app.flow = told;
    app.stale = false;
    app.blind = new Set((told.sources ?? []).filter((source) => !source.ok).map((source) => source.part));
    by("stale").hidden = true;
    put(by("stale"), "");
    put(by("seen"), `as of ${clock(told.at)}`);
    by("seen").className = "";
    view.update(told);
    announce(told);
  } catch (error) {
    missed(error);
  } finally {
    looking = false;
  }
}

// Nothing that was green is shown as green once it is old.
function missed(error) {
  const every = (app.flow?.every ?? 2) * 1000;
  put(by("seen"), "not connected");
  by("seen").className = "bad";
  if (heard === null) {
    put(by("stale"), error.message);
    by("stale").hidden = false;
    return;
  }
  if (Date.now() - heard < STALE * every && error.status === undefined) return;
  put(by("stale"), `${error.message} What is shown is from ${clock(app.flow.at)} and may not hold any more.`);
  by("stale").hidden = false;
  if (!app.stale) {
    app.stale = true;
    view.update(app.flow);
  }
}

async function follow() {
  clearTimeout(timer);
  if (!document.hidden) await look();
  timer = setTimeout(follow, (app.flow?.every ?? 2) * 1000);
}

async function greet() {
  try {
    app.me = await ask("/api/me");
    const writes = app.me.rights.includes("write");
    put(by("who"), app.me.name ? `${app.me.name} (${writes ? "may write" : "reads"})` : writes ? "Open (may write)" : "Token");
    by("who").hidden = !app.me.needs_token && !kept();
  } catch { app.me = null; }
  if (app.flow) view?.update(app.flow);
}

async function token(why) {
  const given = await wantToken(why);
  declined = !given;
  if (given) { await greet(); go(true); await follow(); }
}

by("who").addEventListener("click", () => token("Write the token of whoever uses this page from now on."));
by("skip").addEventListener("click", (event) => { event.preventDefault(); by("view").focus(); by("view").scrollIntoView(); });
document.addEventListener("token-wanted", () => {
  if (!declined) token(kept() ? "The console does not know the token that this tab has." : "Ask whoever runs this console for one.");
});
addEventListener("hashchange", () => go());
document.addEventListener("visibilitychange", () => { if (!document.hidden) follow(); });
go(true);
greet();
follow();
