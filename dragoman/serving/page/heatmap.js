// The weights in numbers: a row a piece that looks, a column a piece that is looked at.

import { heat, inkOn, look } from "./colours.js";
import { draw, rove } from "./dom.js";
import { inWords, textOf, widestOf } from "./pieces.js";

const MOST_WITH_NUMBERS = 32; // pieces on a side
const MOST = 96; // pieces on a side that are drawn
const CELL = { large: 38, small: 16 };

export function isCut({ queries, keys }) {
  return Math.max(queries.length, keys.length) > MOST;
}

export function drawHeatMap({ queries, keys, weights, pinned, name }, report, pin) {
  const { warm } = look();
  const [rows, columns] = [queries.slice(0, MOST), keys.slice(0, MOST)];
  const hasNumbers = Math.max(rows.length, columns.length) <= MOST_WITH_NUMBERS;
  const cell = hasNumbers ? CELL.large : CELL.small;
  const font = hasNumbers ? 13 : 10;
  const left = 12 + widestOf(rows.map((unit) => unit.label), font);
  const top = 12 + widestOf(columns.map((unit) => unit.label), font);
  const [width, height] = [left + columns.length * cell + 2, top + rows.length * cell + 2];
  const text = { "font-size": font };
  const labels = [
    ...rows.map((unit, row) => textOf(unit.label, { ...text, x: left - 8, y: top + (row + 0.5) * cell, "text-anchor": "end" })),
    ...columns.map((unit, column) => {
      const [x, y] = [left + (column + 0.5) * cell, top - 8];
      return textOf(unit.label, { ...text, x, y, transform: `rotate(-90 ${x} ${y})` });
    }),
  ];
  const cells = [];
  const lines = rows.map((query, row) => {
    const own = columns.map((key, column) => {
      const weight = weights[row][column];
      const isPinned = pinned?.query === row && pinned?.key === column;
      const place = { x: left + column * cell, y: top + row * cell };
      const box = draw("rect", { ...place, width: cell - 1, height: cell - 1, rx: 2, fill: heat(weight), stroke: isPinned ? warm : "none", "stroke-width": 2.5 });
      const number = hasNumbers ? draw("text", { x: place.x + (cell - 1) / 2, y: place.y + (cell - 1) / 2, "text-anchor": "middle", "dominant-baseline": "central", "font-size": 11, fill: inkOn(weight), opacity: weight < 0.005 ? 0.35 : 1 }, weight.toFixed(2)) : null;
      const said = `${inWords(query.label)} looks at ${inWords(key.label)}: ${weight.toFixed(4)}`;
      const choose = () => pin(isPinned ? null : { query: row, key: column });
      return draw("g", {
        class: "cell", role: "gridcell", tabindex: (pinned ? isPinned : row + column === 0) ? 0 : -1, "data-focus": `cell-${row}-${column}`,
        "aria-label": said, "aria-selected": String(isPinned), pointerenter: () => report(said), focus: () => report(said), click: choose,
        keydown: (event) => (["Enter", " "].includes(event.key) ? (event.preventDefault(), choose()) : rove(event, cells, columns.length)),
      }, box, number);
    });
    cells.push(...own);
    return draw("g", { role: "row" }, ...own);
  });
  return draw("svg", { width, height, viewBox: `0 0 ${width} ${height}` }, draw("g", { "aria-hidden": "true" }, ...labels), draw("g", { role: "grid", "aria-label": name }, ...lines));
}
