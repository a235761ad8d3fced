// One line over time, with its scale, what it was at the pointer, and the same in words.
import { clock, draw, make, plain, put, set, span } from "./make.js";

const WIDTH = 560, HEIGHT = 150, LEFT = 56, RIGHT = 8, TOP = 10, BOTTOM = 24;

const NAMES = { rate: "Rate", lag_events: "Lag in events", lag_seconds: "Lag in seconds" };

export const named = (series) => NAMES[series.name] ?? series.name.replaceAll("_", " ");

const short = (value) => {
  if (value >= 1e6) return `${(value / 1e6).toFixed(1)} M`;
  if (value >= 1e4) return `${(value / 1e3).toFixed(0)} k`;
  return value < 10 && value % 1 ? value.toFixed(1) : plain(value);
};

// A round number at or above the most.
function ceiling(most) {
  if (most <= 0) return 1;
  const size = 10 ** Math.floor(Math.log10(most));
  return [1, 2, 2.5, 5, 10].map((step) => step * size).find((step) => step >= most);
}

export function chart(series, minutes) {
  const title = make("h3", { text: named(series) });
  const now = make("span", { class: "now" });
  const path = draw("path", { class: "line" });
  const under = draw("path", { class: "under" });
  const top = draw("text", { x: LEFT - 8, y: TOP + 4, "text-anchor": "end" });
  const low = draw("text", { x: LEFT - 8, y: HEIGHT - BOTTOM + 4, "text-anchor": "end" });
  const first = draw("text", { x: LEFT, y: HEIGHT - 6 });
  const last = draw("text", { x: WIDTH - RIGHT, y: HEIGHT - 6, "text-anchor": "end" });
  const cross = draw("path", { class: "cross" });
  const svg = draw("svg", { class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img" },
    draw("path", { class: "axis", d: `M${LEFT} ${TOP}H${WIDTH - RIGHT}M${LEFT} ${HEIGHT - BOTTOM}H${WIDTH - RIGHT}` }),
    under, path, cross, top, low, first, last);
  const element = make("figure", {}, make("figcaption", {}, title, now), svg);
  let shown = [], begin = 0, end = 1, most = 1, unit = "", rest = "";
  const x = (at) => LEFT + ((at - begin) / (end - begin)) * (WIDTH - LEFT - RIGHT);
  const y = (value) => HEIGHT - BOTTOM - (value / most) * (HEIGHT - BOTTOM - TOP);

  function update(next, span_) {
    shown = next.points.filter(([, value]) => value !== null && Number.isFinite(value));
    unit = next.unit ?? "";
    end = Math.max(Date.now() / 1000, shown.at(-1)?.[0] ?? 0);
    begin = end - span_ * 60;
    const values = shown.map(([, value]) => value);
    most = ceiling(Math.max(0, ...values));
    const runs = pieces(next.points, span_);
    set(path, "d", runs.map((run) => run.map(([at, value], number) => `${number ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`).join("") + (run.length === 1 ? "h1" : "")).join(""));
    set(under, "d", runs.filter((run) => run.length > 1).map((run) => `M${x(run[0][0]).toFixed(1)} ${y(0)}` + run.map(([at, value]) => `L${x(at).toFixed(1)} ${y(value).toFixed(1)}`).join("") + `L${x(run.at(-1)[0]).toFixed(1)} ${y(0)}Z`).join(""));
    put(top, short(most));
    put(low, "0");
    put(first, `${span(span_ * 60)} ago`);
    put(last, "now");
    const latest = shown.at(-1)?.[1];
    rest = latest === undefined ? "no samples" : `${short(latest)} ${unit}`;
    put(now, rest);
    set(svg, "aria-label", values.length
      ? `${named(next)} over the last ${span(span_ * 60)}: now ${short(latest)}, least ${short(Math.min(...values))}, most ${short(Math.max(...values))} ${unit}`
      : `${named(next)}: there are no samples of the last ${span(span_ * 60)}`);
  }
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const at = begin + (((event.clientX - box.left) / box.width) * WIDTH - LEFT) / (WIDTH - LEFT - RIGHT) * (end - begin);
    const close = shown.reduce((best, point) => (best && Math.abs(best[0] - at) <= Math.abs(point[0] - at) ? best : point), null);
    if (!close) return;
    set(cross, "d", `M${x(close[0]).toFixed(1)} ${TOP}V${HEIGHT - BOTTOM}`);
    put(now, `${clock(close[0] * 1000)}: ${short(close[1])} ${unit}`);
  });
  svg.addEventListener("pointerleave", () => { set(cross, "d", "M0 0"); put(now, rest); });
  update(series, minutes);
  return { element, update };
}

// Where nothing was seen there is no line: a gap says so.
function pieces(points, minutes) {
  const gap = Math.max(30, (minutes * 60) / 60);
  const found = [];
  let run = [], before = null;
  for (const [at, value] of points) {
    if (value === null || !Number.isFinite(value) || (before !== null && at - before > gap)) {
      if (run.length) found.push(run);
      run = [];
    }
    if (value !== null && Number.isFinite(value)) run.push([at, value]);
    before = at;
  }
  if (run.length) found.push(run);
  return found;
}
