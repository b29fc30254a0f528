// Every head of one kind at a glance, a row a layer.

import { headColour, heat, look } from "./colours.js";
import { make } from "./dom.js";

const SIZE = 84; // pixels, of the longer side
const GAP = 12;

// The rows, and what fetches and paints the weights: not before somebody looks at them.
export function drawHeads({ weights, kind, chosen }, choose) {
  const { layers, heads } = weights.insight.attention[kind];
  const rows = Array.from({ length: layers }, (_, layer) => {
    const buttons = Array.from({ length: heads }, (_, head) => {
      const isChosen = chosen.layer === layer && chosen.head === head;
      const label = { "aria-label": `Layer ${layer + 1}, head ${head + 1}`, "aria-pressed": String(isChosen) };
      const more = { "data-focus": `head-${layer}-${head}`, click: () => choose(layer, head) };
      const canvas = make("canvas", { width: SIZE, height: SIZE, "aria-hidden": "true" });
      const button = make("button", { type: "button", class: "thumbnail", ...label, ...more }, canvas);
      button.style.setProperty("--head", headColour(head, heads));
      return button;
    });
    const name = make("span", { "aria-hidden": "true" }, `Layer ${layer + 1}`);
    return make("div", { class: "heads-row", role: "group", "aria-label": `Layer ${layer + 1}` }, name, ...buttons);
  });
  const paintRow = async (row, layer) => {
    const found = await weights.load(kind, layer);
    row.querySelectorAll("canvas").forEach((canvas, head) => paint(canvas, found.weights[head]));
    return found.weights;
  };
  return { rows, paint: () => Promise.all(rows.map(paintRow)) };
}

function paint(canvas, weights) {
  const [rows, columns] = [weights.length, weights[0].length];
  const cell = Math.max(2, Math.floor(SIZE / Math.max(rows, columns)));
  const density = window.devicePixelRatio || 1;
  canvas.width = columns * cell * density;
  canvas.height = rows * cell * density;
  canvas.style.width = `${columns * cell}px`;
  const pen = canvas.getContext("2d");
  weights.forEach((row, query) =>
    row.forEach((weight, key) => {
      pen.fillStyle = heat(weight);
      pen.fillRect(key * cell * density, query * cell * density, cell * density, cell * density);
    }),
  );
}

// All of them in one picture.
export function gather(rows) {
  const canvases = rows.map((row) => [...row.querySelectorAll("canvas")]);
  const [width, height] = [canvases[0][0].width + GAP, canvases[0][0].height + GAP];
  const all = make("canvas", { width: GAP + width * canvases[0].length, height: GAP + height * canvases.length });
  const pen = all.getContext("2d");
  pen.fillStyle = look().paper;
  pen.fillRect(0, 0, all.width, all.height);
  canvases.forEach((row, layer) =>
    row.forEach((canvas, head) => pen.drawImage(canvas, GAP + head * width, GAP + layer * height)),
  );
  return all;
}
