// Tables of any length: a page of rows is in the document, never more.
import { make, plain, put } from "./make.js";

const ROWS = 50;

// `columns`: [{title, number, wide}]; `fill(row, cells)` writes a row into its cells, which stay as they are.
export function table(label, columns, fill, { keyOf, rows: most = ROWS, empty = "There is nothing here." }) {
  const caption = make("caption", { class: "unseen", text: label });
  const head = make("tr", {}, columns.map((column) =>
    make("th", { scope: "col", class: classes(column) }, column.unseen ? make("span", { class: "unseen", text: column.title }) : column.title)));
  const body = make("tbody");
  const none = make("p", { class: "empty", text: empty, hidden: true });
  const grid = make("table", {}, caption, make("thead", {}, head), body);
  const scroll = make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Table: ${label}` }, grid);
  const where = make("span", { class: "where" });
  const back = make("button", { type: "button", text: "Back", onclick: () => turn(-1) });
  const next = make("button", { type: "button", text: "Next", onclick: () => turn(1) });
  const pager = make("div", { class: "pager", role: "group", "aria-label": `Pages of ${label}` }, where, back, next);
  const element = make("div", { class: "listed" }, scroll, none, pager);
  const made = new Map();
  let all = [], page = 0;
  const turn = (by) => { page += by; show(); scroll.scrollTop = 0; };

  function show() {
    page = Math.max(0, Math.min(page, Math.ceil(all.length / most) - 1));
    const shown = all.slice(page * most, (page + 1) * most);
    const keys = new Set();
    shown.forEach((row, number) => {
      const key = keyOf ? keyOf(row) : number;
      keys.add(key);
      if (!made.has(key)) {
        const cells = columns.map((column) => make(column.heads ? "th" : "td", { class: classes(column), scope: column.heads ? "row" : null }));
        made.set(key, { cells, element: make("tr", {}, cells) });
      }
      const each = made.get(key);
      fill(row, each.cells, each.element);
      if (body.children[number] !== each.element) body.insertBefore(each.element, body.children[number] ?? null);
    });
    for (const [key, old] of made) if (!keys.has(key)) { old.element.remove(); made.delete(key); }
    none.hidden = all.length > 0;
    scroll.hidden = !all.length;
    pager.hidden = all.length <= most;
    put(where, all.length ? `${plain(page * most + 1)} to ${plain(page * most + shown.length)} of ${plain(all.length)}` : "");
    back.disabled = page === 0;
    next.disabled = (page + 1) * most >= all.length;
  }
  return { element, update(rows) { all = rows; show(); }, first() { page = 0; } };
}

const classes = (column) => [column.number ? "number" : "", column.wide ? "wide" : "", column.long ? "long" : ""].join(" ").trim() || null;
