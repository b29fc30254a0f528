// The weights in numbers: a row a piece that looks, a column a piece that is looked at.

import { heat, inkOn, look } from "./colours.js";
import { draw, isPress, picture, rove, write } from "./dom.js";
import { inWords, textOf, widestOf } from "./pieces.js";

const MOST_WITH_NUMBERS = 32; // pieces on a side
export const MOST_DRAWN = 96; // pieces on a side

// `report` hears which cell is pointed at, in words, and `pin` which is chosen.
export function drawHeatMap({ queries, keys, weights, pinned, name }, report, pin) {
  const plan = layOut(queries.slice(0, MOST_DRAWN), keys.slice(0, MOST_DRAWN));
  const cells = [];
  const rows = plan.rows.map((query, row) => {
    const own = plan.columns.map((key, column) => {
      const isPinned = pinned?.query === row && pinned?.key === column;
      const isEntrance = pinned ? isPinned : row + column === 0;
      const said = `${inWords(query)} looks at ${inWords(key)}: ${weights[row][column].toFixed(4)}`;
      const choose = () => pin(isPinned ? null : { query: row, key: column });
      const hears = {
        pointerenter: () => report(said),
        focus: () => report(said),
        click: choose,
        keydown: (event) => (isPress(event) ? choose() : rove(event, cells, plan.columns.length)),
      };
      const names = { "aria-label": said, "aria-selected": String(isPinned), "data-focus": `cell-${row}-${column}` };
      const cell = { class: "cell", role: "gridcell", tabindex: isEntrance ? 0 : -1 };
      return draw("g", { ...cell, ...names, ...hears }, ...drawCell(plan, row, column, weights[row][column], isPinned));
    });
    cells.push(...own);
    return draw("g", { role: "row" }, ...own);
  });
  const labels = draw("g", { "aria-hidden": "true" }, ...drawLabels(plan));
  return picture(plan.width, plan.height, {}, labels, draw("g", { role: "grid", "aria-label": name }, ...rows));
}

function layOut(queries, keys) {
  const [rows, columns] = [queries, keys].map((units) => units.map(({ label }) => label));
  const hasNumbers = Math.max(rows.length, columns.length) <= MOST_WITH_NUMBERS;
  const [cell, font] = hasNumbers ? [38, 13] : [16, 10];
  const [left, top] = [12 + widestOf(rows, font), 12 + widestOf(columns, font)];
  const [width, height] = [left + columns.length * cell + 2, top + rows.length * cell + 2];
  return { rows, columns, hasNumbers, cell, font, left, top, width, height };
}

function drawLabels({ rows, columns, cell, font, left, top }) {
  const beside = rows.map((label, row) =>
    textOf(label, { x: left - 8, y: top + (row + 0.5) * cell, "text-anchor": "end", "font-size": font }),
  );
  const above = columns.map((label, column) => {
    const [x, y] = [left + (column + 0.5) * cell, top - 8];
    return textOf(label, { x, y, transform: `rotate(-90 ${x} ${y})`, "font-size": font });
  });
  return [...beside, ...above];
}

function drawCell({ left, top, cell, hasNumbers }, row, column, weight, isPinned) {
  const [x, y, size] = [left + column * cell, top + row * cell, cell - 1];
  const edge = { stroke: isPinned ? look().warm : "none", "stroke-width": 2.5 };
  const box = draw("rect", { x, y, width: size, height: size, rx: 2, fill: heat(weight), ...edge });
  if (!hasNumbers) return [box];
  const ink = { fill: inkOn(weight), opacity: weight < 0.005 ? 0.35 : 1, "font-size": 11, "text-anchor": "middle" };
  return [box, write(weight.toFixed(2), { x: x + size / 2, y: y + size / 2, ...ink })];
}
