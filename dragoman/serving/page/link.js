// What is on view, and the link that brings it back: it stands behind the #, which browsers send to nobody.

export const view = {
  text: "",
  source: "",
  target: "",
  inside: false,
  sentence: 0,
  kind: "cross",
  layer: null, // the last unless chosen
  head: "all", // or mean, max, or a number
  unit: "pieces", // or words
  query: null, // of the pinned cell
  key: null,
  step: 0,
};

const NUMBERS = ["sentence", "layer", "query", "key", "step"];
const DEFAULTS = { ...view };
let timer = null;

export function readLink() {
  for (const [name, value] of new URLSearchParams(location.hash.slice(1))) {
    if (!(name in DEFAULTS)) continue;
    if (name === "inside") view.inside = value === "true";
    else if (NUMBERS.includes(name)) view[name] = /^\d+$/.test(value) ? Number(value) : DEFAULTS[name];
    else view[name] = value;
  }
  if (/^\d+$/.test(view.head)) view.head = Number(view.head);
}

export function remember() {
  clearTimeout(timer);
  timer = setTimeout(() => history.replaceState(null, "", linkOfView()), 300); // browsers allow it only so often
}

export function linkOfView() {
  const kept = Object.entries(view).filter(([name, value]) => value !== DEFAULTS[name] && value !== null);
  return `${location.pathname}${location.search}#${new URLSearchParams(kept)}`;
}
