// What is added to the first embeddings so that the model knows where each piece stands.

import { signed } from "./colours.js";
import { draw, make } from "./dom.js";

const [WIDTH, ROW] = [720, 6];

const WORDS = {
  sinusoidal:
    "Attention by itself does not know which piece comes first. So a pattern is added to each piece that only its place has: " +
    "waves that are fast in the first channels and slow in the last, as the hands of a clock are.",
  learned: "Attention by itself does not know which piece comes first. So a pattern is added to each piece that only its place has. This model has learned its patterns.",
  rotary: "This model adds nothing to its embeddings: it turns queries and keys by an angle that grows with their place.",
  none: "This model adds nothing to its embeddings to say where a piece stands.",
};

export function describePositions({ kind }) {
  return WORDS[kind] ?? WORDS.none;
}

export function drawPositions({ table }, report) {
  const channels = table[0].length;
  const density = window.devicePixelRatio || 1;
  const [width, height] = [WIDTH, table.length * ROW];
  const canvas = make("canvas", { width: width * density, height: height * density, tabindex: 0, role: "img",
    "aria-label": `Positional encoding: ${table.length} positions, ${channels} channels. The arrow keys read it.` });
  canvas.style.width = `${width}px`;
  const pen = canvas.getContext("2d");
  const most = Math.max(...table.flat().map(Math.abs));
  const [cellWidth, cellHeight] = [canvas.width / channels, canvas.height / table.length];
  table.forEach((row, position) =>
    row.forEach((number, channel) => {
      pen.fillStyle = signed(number, most);
      pen.fillRect(Math.floor(channel * cellWidth), Math.floor(position * cellHeight), Math.ceil(cellWidth), Math.ceil(cellHeight));
    }),
  );
  const place = { position: 0, channel: 0 };
  const read = () => report(`position ${place.position + 1}, channel ${place.channel + 1}: ${table[place.position][place.channel].toFixed(3)}`);
  canvas.addEventListener("pointermove", (event) => {
    place.position = within(Math.floor((event.offsetY / canvas.clientHeight) * table.length), table.length);
    place.channel = within(Math.floor((event.offsetX / canvas.clientWidth) * channels), channels);
    read();
  });
  canvas.addEventListener("keydown", (event) => {
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    if (!moves[event.key]) return;
    event.preventDefault();
    place.position = within(place.position + moves[event.key][0], table.length);
    place.channel = within(place.channel + moves[event.key][1], channels);
    read();
  });
  return canvas;
}

// The same as boxes, for those who save it.
export function asBoxes({ table }) {
  const [width, most] = [WIDTH / table[0].length, Math.max(...table.flat().map(Math.abs))];
  const boxes = table.flatMap((row, position) =>
    row.map((number, channel) => draw("rect", { x: (channel * width).toFixed(2), y: position * ROW, width: width.toFixed(2), height: ROW, fill: signed(number, most) })),
  );
  return draw("svg", { width: WIDTH, height: table.length * ROW, "shape-rendering": "crispEdges" }, ...boxes);
}

function within(number, count) {
  return Math.max(0, Math.min(count - 1, number));
}
