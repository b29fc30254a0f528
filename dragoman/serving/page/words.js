// What the page says about its figures.

import { inWords } from "./pieces.js";

const LOOKS = {
  cross:
    "To write each piece of the translation (below), the model looks at the source (above) " +
    "and takes from it what it needs.",
  encoder:
    "Each piece of the source (below) looks at all of the source (above), " +
    "and learns from its neighbours what it means here.",
  decoder:
    "Each piece that is being written (below) looks back at what had been written before it (above), never ahead.",
};

const POSITIONS = {
  sinusoidal:
    "Attention by itself does not know which piece comes first. So a pattern is added to each piece that only its " +
    "place has: waves that are fast in the first channels and slow in the last, as the hands of a clock are.",
  learned:
    "Attention by itself does not know which piece comes first. So a pattern is added to each piece that only its " +
    "place has. This model has learned its patterns.",
  rotary:
    "This model adds nothing to its embeddings: it turns queries and keys by an angle that grows with their place.",
  none: "This model adds nothing to its embeddings to say where a piece stands.",
};

export const STEPS =
  "A translation is written from its beginning, one piece after another. At each step the model shares out its trust " +
  "among all the pieces it knows. The search keeps several beginnings alive, and in the end takes the likeliest whole.";

export const HEADS =
  "Every head has learned to look in its own way: one at the word that is being translated, one at a neighbour, " +
  "one at nothing in particular. Choose one to see it large.";

export const NO_ATTENTION =
  "This model writes without attention: what it knows of the source it carries along. There is nothing to draw here.";

export const NO_SCORES =
  "This model does not compare queries with keys as the Transformer does: there are no scores to show.";

export const POINT = "Point at a piece to see where it looks; choose it to keep it.";

export function aboutLooks(kind, isNarrow, hasColours) {
  const words = isNarrow ? LOOKS[kind].replace("below", "right").replace("above", "left") : LOOKS[kind];
  const colours = hasColours ? " A head is a way of looking of its own: each has its colour." : "";
  return `${words} The thicker a line, the more it takes.${colours}`;
}

export function aboutMap(layer, head, weights, most) {
  const isWhole = weights.every((row) => Math.abs(row.reduce((sum, weight) => sum + weight, 0) - 1) < 0.02);
  const sum = isWhole ? " Each row adds up to 1." : "";
  const isCut = Math.max(weights.length, weights[0].length) > most;
  const cut = isCut ? ` Only the first ${most} pieces of each side are drawn; JSON has all.` : "";
  return `Rows look at columns: layer ${layer + 1}, ${head}.${sum} Choose a cell to take it apart.${cut}`;
}

export function aboutCell(kind, head, asking, asked) {
  const hidden = kind === "decoder" ? " What it may not see yet is faint: it gets no weight, whatever its score." : "";
  return (
    `Head ${head + 1} makes a query q of “${inWords(asking)}” and a key k of “${inWords(asked)}”. ` +
    "Multiplied channel by channel and added up, they say how well the two fit. " +
    `The softmax makes weights of a row of such scores, which add up to 1.${hidden}`
  );
}

// The way from a query and a key to their weight.
export function reckoning({ queries, keys, scores }, weight, row, column) {
  const [query, key] = [queries[row], keys[column]];
  const product = query.reduce((sum, number, channel) => sum + number * key[channel], 0);
  const score = scores[row][column];
  return (
    `q · k = ${product.toFixed(2)}, divided by √${query.length} = ${score.toFixed(2)}, ` +
    `after the softmax ${weight.toFixed(2)}`
  );
}

export function aboutPositions({ kind, table }) {
  return `${POSITIONS[kind] ?? POSITIONS.none}${table.length ? " A row is a place, a column a channel." : ""}`;
}
