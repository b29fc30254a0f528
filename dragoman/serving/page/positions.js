// What is added to the first embeddings so that the model knows where each piece stands.

import { signed } from "./colours.js";
import { draw, make } from "./dom.js";

const [WIDTH, ROW] = [720, 6];

export function drawPositions({ table }, report) {
  const channels = table[0].length;
  const density = window.devicePixelRatio || 1;
  const [width, height] = [WIDTH, table.length * ROW];
  const canvas = make("canvas", {
    width: width * density,
    height: height * density,
    tabindex: 0,
    role: "img",
    "aria-label": `Positional encoding: ${table.length} positions, ${channels} channels. The arrow keys read it.`,
  });
  canvas.style.width = `${width}px`;
  const pen = canvas.getContext("2d");
  const most = largest(table);
  const [cellWidth, cellHeight] = [canvas.width / channels, canvas.height / table.length];
  table.forEach((row, position) =>
    row.forEach((number, channel) => {
      pen.fillStyle = signed(number, most);
      pen.fillRect(
        Math.floor(channel * cellWidth),
        Math.floor(position * cellHeight),
        Math.ceil(cellWidth),
        Math.ceil(cellHeight),
      );
    }),
  );
  const place = { position: 0, channel: 0 };
  const read = () => {
    const number = table[place.position][place.channel].toFixed(3);
    report(`position ${place.position + 1}, channel ${place.channel + 1}: ${number}`);
  };
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
  const [width, most] = [WIDTH / table[0].length, largest(table)];
  const boxes = table.flatMap((row, position) =>
    row.map((number, channel) =>
      draw("rect", {
        x: (channel * width).toFixed(2),
        y: position * ROW,
        width: width.toFixed(2),
        height: ROW,
        fill: signed(number, most),
      }),
    ),
  );
  return draw("svg", { width: WIDTH, height: table.length * ROW, "shape-rendering": "crispEdges" }, ...boxes);
}

function largest(table) {
  return Math.max(...table.map((row) => Math.max(...row.map(Math.abs))));
}

function within(number, count) {
  return Math.max(0, Math.min(count - 1, number));
}
