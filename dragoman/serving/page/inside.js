// Inside the translation: fetches what there is to see of a sentence, and shows it figure by figure.

import { ask } from "./api.js";
import { showControls } from "./controls.js";
import { byId, make } from "./dom.js";
import { Figures } from "./figures.js";
import { remember, view } from "./link.js";
import { explain } from "./notice.js";
import { Weights } from "./weights.js";

let pairs = null; // sentences with their translations, once there are any
let other = null; // a translation from the beam that is looked into instead
let running = null;
let figures, controls, status;
let weights = null; // of the sentence on view

export function startInside() {
  controls = make("div", { class: "controls" });
  status = make("p", { class: "status", role: "status" });
  figures = new Figures(set, lookInto);
  byId("inside-body").append(status, controls, figures.root);
  byId("look").addEventListener("click", () => open(!view.inside));
  document.addEventListener("themechange", () => weights && render());
  let width = window.innerWidth;
  window.addEventListener("resize", () => {
    if (window.innerWidth !== width && weights) render();
    width = window.innerWidth;
  });
  open(view.inside);
}

// What has been translated, sentence by sentence; nothing where there is no translation.
export function lookInside(found) {
  pairs = (found ?? []).filter(({ text, translation }) => text.trim() && translation.trim());
  other = null;
  refresh();
}

function open(isOpen) {
  view.inside = isOpen;
  byId("look").setAttribute("aria-expanded", String(isOpen));
  byId("inside-body").hidden = !isOpen;
  remember();
  refresh();
}

function lookInto(translation) {
  other = translation;
  view.step = 0;
  view.query = view.key = null;
  refresh();
}

function set(changes) {
  const isOther = "sentence" in changes;
  Object.assign(view, changes);
  remember();
  if (isOther) {
    other = null;
    refresh();
  } else {
    render();
  }
}

async function refresh() {
  running?.abort();
  if (!view.inside || !pairs) return;
  if (!pairs.length) {
    hide("Translate something, and come back.");
    return;
  }
  const mine = (running = new AbortController());
  view.sentence = Math.min(view.sentence, pairs.length - 1);
  const pair = { ...pairs[view.sentence] };
  if (other !== null) pair.translation = other;
  const { text: q, source, target, translation } = pair;
  byId("inside-body").setAttribute("aria-busy", "true");
  try {
    const insight = await ask("inside", { q, source, target, translation }, mine.signal);
    if (mine !== running) return;
    weights = new Weights(pair, insight);
    status.textContent = other === null ? "" : `Looking into another translation: ${other}`;
    render();
  } catch (error) {
    if (mine !== running || error.name === "AbortError") return;
    hide(`This sentence cannot be looked into: ${error.message}`);
    if (error.status !== 400) explain(error, refresh);
  } finally {
    if (mine === running) byId("inside-body").removeAttribute("aria-busy");
  }
}

function hide(words) {
  weights = null;
  status.textContent = words;
  controls.replaceChildren();
  figures.root.hidden = true;
}

function render() {
  const { attention } = weights.insight;
  if (!attention[view.kind]?.layers)
    view.kind = Object.keys(attention).find((kind) => attention[kind].layers) ?? "cross";
  const { layers, heads } = attention[view.kind];
  view.layer = Math.max(0, Math.min(view.layer ?? layers - 1, layers - 1));
  if (typeof view.head === "number" && view.head >= heads) view.head = "all";
  showControls(controls, { view, pairs, attention }, set);
  figures.root.hidden = false;
  figures.render(weights).catch((error) => explain(error, () => figures.render(weights)));
}
