// The weights of one translated sentence: fetched a layer at a time, put together by heads and by words.

import { ask } from "./api.js";

const BLANK = "\u2581";
const POSITIONS = 64;
const places = new Map();

export const KINDS = {
  cross: { label: "Cross", sides: ["translation", "source"], query: "target", key: "source" },
  encoder: { label: "Encoder", sides: ["source", "source"], query: "source", key: "source" },
  decoder: { label: "Decoder", sides: ["translation", "translation"], query: "target", key: "read" },
};

export class Weights {
  constructor({ text, source, target, translation }, insight) {
    this.fields = { q: text, source, target, translation };
    this.insight = insight;
    this.kept = new Map();
  }

  // Queries, keys, and weights as heads x queries x keys.
  load(kind, layer) {
    return once(this.kept, "attention", { ...this.fields, kind, layer });
  }

  // The same, and the queries, keys and scores of one head.
  compare(kind, layer, head) {
    return once(this.kept, "attention", { ...this.fields, kind, layer, head });
  }

  // The same for every sentence of a pair of languages.
  positions() {
    const { source, target } = this.fields;
    return once(places, "positions", { source, target, length: POSITIONS });
  }

  // What stands on both sides of a kind: each with a label and the pieces it is made of.
  sides(kind, unit) {
    const { query, key } = KINDS[kind];
    return { queries: this.side(query, unit), keys: this.side(key, unit) };
  }

  side(name, unit) {
    if (name !== "read") return units(this.insight[name], unit);
    // What had been written: the beginning of the sentence first, and not its end.
    const written = units(this.insight.target, unit).slice(0, -1);
    const moved = written.map(({ label, pieces }) => ({ label, pieces: pieces.map((piece) => piece + 1) }));
    return [{ label: "<s>", pieces: [0] }, ...moved];
  }
}

function once(kept, path, fields) {
  const name = path + JSON.stringify(fields);
  if (!kept.has(name)) {
    const asked = ask(path, fields);
    asked.catch(() => kept.delete(name)); // another time, perhaps
    kept.set(name, asked);
  }
  return kept.get(name);
}

function units({ pieces, words }, unit) {
  const found = [];
  const taken = new Set();
  for (const word of unit === "words" ? words : []) {
    const own = word.pieces.filter((piece) => !taken.has(piece));
    own.forEach((piece) => taken.add(piece));
    if (own.length) found.push({ label: word.text, pieces: own });
  }
  pieces.forEach((label, piece) => taken.has(piece) || found.push({ label, pieces: [piece] }));
  found.sort((one, other) => one.pieces[0] - other.pieces[0]);
  return unit === "words" ? withoutBlanks(found) : found;
}

// A blank that is a piece by itself belongs to the word behind it.
function withoutBlanks(found) {
  const kept = [];
  let before = [];
  for (const { label, pieces } of found) {
    if (label === BLANK) before = [...before, ...pieces];
    else kept.push({ label, pieces: [...before.splice(0), ...pieces] });
  }
  kept.at(-1)?.pieces.push(...before);
  return kept;
}

// A word looks as its pieces do on average, and is looked at as much as all of them together.
export function merge(weights, { queries, keys }) {
  return queries.map((query) =>
    keys.map((key) => {
      const sums = query.pieces.map((row) => key.pieces.reduce((sum, column) => sum + weights[row][column], 0));
      return sums.reduce((sum, each) => sum + each, 0) / sums.length;
    }),
  );
}

// Of several heads: one of them, the largest of their weights, or the mean.
export function together(heads, chosen) {
  if (typeof chosen === "number") return heads[chosen];
  return heads[0].map((row, query) =>
    row.map((_, key) => {
      const each = heads.map((head) => head[query][key]);
      return chosen === "max" ? Math.max(...each) : each.reduce((sum, weight) => sum + weight, 0) / each.length;
    }),
  );
}

export function nameOfHead(chosen) {
  return (
    { all: "mean of all heads", mean: "mean of all heads", max: "largest of all heads" }[chosen] ?? `head ${chosen + 1}`
  );
}
