// What of the inside is looked at: which sentence, attention, layer and head, and whether by pieces or by words.

import { headColour } from "./colours.js";
import { choice, make, renew } from "./dom.js";
import { KINDS } from "./weights.js";

export function showControls(root, { view, pairs, attention }, set) {
  const { layers, heads } = attention[view.kind];
  const kinds = Object.entries(KINDS).map(([value, { label, sides }]) => {
    const disabled = !attention[value].layers;
    return {
      value,
      label,
      disabled,
      title: disabled ? "This model has no such attention" : `${sides[0]} looks at ${sides[1]}`,
    };
  });
  const numbered = Array.from({ length: layers }, (_, layer) => ({ value: layer, label: `${layer + 1}` }));
  const each = Array.from({ length: heads }, (_, head) => ({
    value: head,
    label: `${head + 1}`,
    colour: headColour(head, heads),
  }));
  const few = [
    { value: "all", label: "All", title: "Each head in its colour; in numbers their mean" },
    { value: "mean", label: "Mean" },
    { value: "max", label: "Max" },
  ];
  const units = [
    { value: "pieces", label: "Pieces", title: "As the model reads: words and parts of words" },
    { value: "words", label: "Words" },
  ];
  renew(
    root,
    pairs.length > 1 ? sentences(pairs, view.sentence, set) : null,
    choice("kind", "Attention", kinds, view.kind, (kind) =>
      set({ kind, layer: null, head: "all", query: null, key: null }),
    ),
    layers > 1 ? choice("layer", "Layer", numbered, view.layer, (layer) => set({ layer })) : null,
    heads > 1 ? choice("head", "Heads", [...few, ...each], view.head, (head) => set({ head })) : null,
    layers ? choice("unit", "By", units, view.unit, (unit) => set({ unit, query: null, key: null })) : null,
  );
}

function sentences(pairs, chosen, set) {
  const options = pairs.map(({ text }, number) =>
    make("option", { value: number }, `${number + 1}. ${text.slice(0, 40)}`),
  );
  const change = (event) => set({ sentence: Number(event.target.value), query: null, key: null, step: 0 });
  const select = make("select", { id: "sentence", "data-focus": "sentence", change }, ...options);
  select.value = chosen;
  return make("div", { class: "choice" }, make("label", { for: "sentence" }, "Sentence"), select);
}
