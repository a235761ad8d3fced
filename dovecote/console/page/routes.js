// Deep links: what the fragment of the address names.
export function route(hash = location.hash) {
  const [path, rest = ""] = (hash.replace(/^#\/?/, "")).split(/\?(.*)/s);
  const [view = "", ...ids] = path.split("/");
  return {
    view: view || "flow",
    id: ids.map(decoded).join("/"),
    filters: Object.fromEntries(new URLSearchParams(rest)),
  };
}

function decoded(text) {
  try { return decodeURIComponent(text); } catch { return text; }
}

export const linkTo = (id) => `#/part/${id.split("/").map(encodeURIComponent).join("/")}`;

export function linkWith(view, filters) {
  const given = Object.entries(filters).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return `#/${view}${given.length ? `?${new URLSearchParams(given)}` : ""}`;
}

// A link that the server gave is followed within this page only.
export const safe = (link, id) => (typeof link === "string" && link.startsWith("#/") ? link : linkTo(id));
