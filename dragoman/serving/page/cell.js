// One weight taken apart: query times key, summed and divided, and what the softmax makes of it.

import { heat, look, signed } from "./colours.js";
import { draw } from "./dom.js";
import { textOf, widestOf } from "./pieces.js";

const STRIP = { height: 22, left: 52 };
const ROW = 24;

// `compared` are queries, keys and scores of a head; `row` and `column` say which of its pieces are meant.
export function drawProduct(compared, row, column, room) {
  const { ink, faint } = look();
  const [query, key] = [compared.queries[row], compared.keys[column]];
  const product = query.map((number, channel) => number * key[channel]);
  const most = Math.max(...[...query, ...key].map(Math.abs));
  const strips = [["q", query, most], ["k", key, most], ["q × k", product, Math.max(...product.map(Math.abs))]];
  const length = Math.max(180, Math.min(640, room - STRIP.left - 4));
  const bar = length / query.length;
  const rows = strips.map(([name, numbers, largest], line) => {
    const y = line * (STRIP.height + 8);
    const label = draw("text", { x: STRIP.left - 10, y: y + STRIP.height / 2, "text-anchor": "end", "dominant-baseline": "central", "font-size": 13, "font-style": "italic", fill: ink }, name);
    const boxes = numbers.map((number, channel) =>
      draw("rect", { x: STRIP.left + channel * bar, y, width: Math.max(0.5, bar - (bar > 4 ? 1 : 0)), height: STRIP.height, fill: signed(number, largest) },
        draw("title", {}, `${name}, channel ${channel + 1}: ${number.toFixed(3)}`)),
    );
    return draw("g", {}, label, ...boxes);
  });
  const [width, height] = [STRIP.left + length + 2, 3 * (STRIP.height + 8) + 18];
  const note = draw("text", { x: STRIP.left, y: height - 8, "font-size": 11, fill: faint }, `one box a channel of the head, ${query.length} in all`);
  const label = "The query, the key and their products, channel by channel";
  return draw("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }, ...rows, note);
}

// All scores of the query's row, and the weights that the softmax makes of them; what it may not see yet is faint.
export function drawSoftmax(compared, weights, labels, row, column, isHidden, room) {
  const { ink, faint, accent, warm, line } = look();
  const scores = compared.scores[row];
  const longest = 12 + widestOf(labels, 13);
  const gap = 58;
  const half = Math.max(48, Math.min(220, (room - longest - gap - 48) / 2));
  const most = Math.max(...scores.map(Math.abs), 1e-6);
  const [scoresAt, weightsAt] = [longest + half / 2, longest + half + gap];
  const text = { "dominant-baseline": "central", "font-size": 12, fill: ink };
  const rows = labels.map((label, key) => {
    const y = 34 + key * ROW;
    const middle = y + ROW / 2;
    const length = (Math.abs(scores[key]) / most) * (half / 2 - 4);
    const isPinned = key === column;
    return draw("g", { opacity: isHidden(key) ? 0.3 : 1 },
      textOf(label, { x: longest - 8, y: middle, "text-anchor": "end", "font-size": 13, "font-weight": isPinned ? 700 : 400, fill: isPinned ? warm : ink }),
      draw("rect", { x: scores[key] < 0 ? scoresAt - length : scoresAt, y: y + 4, width: Math.max(0.5, length), height: ROW - 8, rx: 2, fill: scores[key] < 0 ? warm : accent }),
      draw("text", { ...text, x: scoresAt + half / 2 + 8, y: middle, "font-size": 11, fill: isPinned ? warm : faint }, scores[key].toFixed(2)),
      draw("rect", { x: weightsAt, y: y + 4, width: Math.max(0.5, half * weights[row][key]), height: ROW - 8, rx: 2, fill: heat(0.35 + 0.65 * weights[row][key]) }),
      draw("text", { ...text, x: weightsAt + half * weights[row][key] + 6, y: middle, "font-size": 11, fill: isPinned ? warm : faint }, weights[row][key].toFixed(2)),
    );
  });
  const [width, height] = [weightsAt + half + 46, 40 + labels.length * ROW];
  const heading = { y: 16, "font-size": 12, "font-style": "italic", fill: faint };
  const axis = draw("line", { x1: scoresAt, x2: scoresAt, y1: 30, y2: height - 6, stroke: line });
  return draw("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Scores before the softmax and weights after it" },
    draw("text", { ...heading, x: scoresAt, "text-anchor": "middle" }, "scores"),
    draw("text", { ...heading, x: weightsAt }, "weights"), axis, ...rows);
}

export function reckon(compared, weight, row, column) {
  const [query, key] = [compared.queries[row], compared.keys[column]];
  const sum = query.reduce((total, number, channel) => total + number * key[channel], 0);
  return `q · k = ${sum.toFixed(2)}, divided by √${query.length} = ${compared.scores[row][column].toFixed(2)}, after the softmax ${weight.toFixed(2)}`;
}
