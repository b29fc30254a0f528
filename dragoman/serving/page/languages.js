// Which language into which: only what the server offers can be chosen.

import { byId, make } from "./dom.js";
import { view } from "./link.js";

const AUTO = "auto";
let languages = [];
let detected = null;

export function startLanguages(offered, preferred, changed) {
  languages = offered;
  const sources = languages.filter((each) => each.targets.length);
  const options = sources.map((each) => make("option", { value: each.code }, each.name));
  if (sources.length > 1) options.unshift(make("option", { value: AUTO }, "Detect language"));
  byId("source").replaceChildren(...options);
  const isOffered = options.some((option) => option.value === view.source);
  view.source = byId("source").value = isOffered ? view.source : options[0].value;
  offerTargets(view.target || preferred);
  byId("source").addEventListener("change", () => {
    view.source = byId("source").value;
    detected = null;
    offerTargets(view.target);
    changed();
  });
  byId("target").addEventListener("change", () => {
    view.target = byId("target").value;
    showSwap();
    changed();
  });
}

// What an unknown source turned out to be.
export function showDetected(found) {
  detected = found && found.confidence > 0 ? found.language : null;
  const first = byId("source").options[0];
  if (first.value === AUTO) first.textContent = detected ? `${nameOf(detected)} (detected)` : "Detect language";
  showSwap();
}

// The pair to ask for the inside of a translation: one that is known.
export function currentSource() {
  if (view.source !== AUTO) return view.source;
  const fitting = languages.find((each) => each.targets.includes(view.target));
  return detected ?? fitting.code;
}

export function canSwap() {
  const source = view.source === AUTO ? detected : view.source;
  return source !== null && source !== view.target && targetsOf(view.target).includes(source);
}

export function swapLanguages() {
  [view.source, view.target] = [view.target, view.source === AUTO ? detected : view.source];
  detected = null;
  byId("source").value = view.source;
  offerTargets(view.target);
}

export function nameOf(code) {
  return languages.find((each) => each.code === code)?.name ?? code;
}

function targetsOf(code) {
  return languages.find((each) => each.code === code)?.targets ?? [];
}

function offerTargets(wanted) {
  const every = [...new Set(languages.flatMap((each) => each.targets))];
  const codes = view.source === AUTO ? every : targetsOf(view.source);
  byId("target").replaceChildren(...codes.map((code) => make("option", { value: code }, nameOf(code))));
  view.target = byId("target").value = codes.includes(wanted) ? wanted : codes[0];
  showSwap();
}

function showSwap() {
  const swap = byId("swap");
  swap.disabled = !canSwap();
  swap.title = swap.disabled ? "This server does not translate the other way" : "Swap languages";
}
