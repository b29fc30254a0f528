// Pieces as they are written: the mark of a word's beginning is faint, and what is long is cut.

import { look } from "./colours.js";
import { draw, make, write } from "./dom.js";

const MARK = "\u2581"; // where a word begins
const LONGEST = 18;

export function cut(label) {
  return label.length > LONGEST ? `${label.slice(0, LONGEST - 1)}…` : label;
}

export function beginsWord(label) {
  return label.startsWith(MARK);
}

export function textOf(label, attributes) {
  const shown = cut(label);
  const begins = beginsWord(shown);
  const mark = begins ? draw("tspan", { fill: look().faint }, "_") : null;
  const text = write(begins ? shown.slice(1) : shown, { fill: look().ink, ...attributes });
  if (mark) text.prepend(mark);
  return text;
}

export function spanOf(label) {
  const begins = beginsWord(label);
  const mark = begins ? make("span", { class: "faint" }, "_") : null;
  return make("span", { dir: "auto" }, mark, begins ? label.slice(1) : label);
}

// In a sentence, or read aloud.
export function inWords(label) {
  return label === MARK ? "blank" : label.replace(MARK, "");
}

const pen = document.createElement("canvas").getContext("2d");

export function widthOf(label, size) {
  pen.font = `${size}px system-ui, sans-serif`;
  return pen.measureText(cut(label)).width;
}

export function widestOf(labels, size) {
  return Math.max(...labels.map((label) => widthOf(label, size)));
}
