// One weight taken apart: query times key, summed and divided, and what the softmax makes of it.

import { heat, look, signed } from "./colours.js";
import { draw, picture, write } from "./dom.js";
import { textOf, widestOf } from "./pieces.js";

const STRIP = { height: 22, step: 30, left: 52 };
const ROW = { height: 16, step: 24, top: 34 };
const GAP = 58; // between scores and weights, for the scores' numbers

// `compared` are queries, keys and scores of a head; `row` and `column` say which of its pieces are meant.
export function drawProduct({ queries, keys }, row, column, room) {
  const { faint } = look();
  const [query, key] = [queries[row], keys[column]];
  const product = query.map((number, channel) => number * key[channel]);
  const most = largest([...query, ...key]);
  const length = within(room - STRIP.left - 4, 180, 640);
  const strips = [
    drawStrip("q", query, most, 0, length),
    drawStrip("k", key, most, 1, length),
    drawStrip("q × k", product, largest(product), 2, length),
  ];
  const note = `one box a channel of the head, ${query.length} in all`;
  const below = write(note, { x: STRIP.left, y: 3 * STRIP.step + 6, "font-size": 11, fill: faint });
  const name = "The query, the key and their products, channel by channel";
  const said = { role: "img", "aria-label": name };
  return picture(STRIP.left + length + 2, 3 * STRIP.step + 18, said, ...strips, below);
}

function drawStrip(name, numbers, most, place, length) {
  const [y, width] = [place * STRIP.step, length / numbers.length];
  const [x, middle] = [STRIP.left - 10, y + STRIP.height / 2];
  const style = { "text-anchor": "end", "font-size": 13, "font-style": "italic", fill: look().ink };
  const boxes = numbers.map((number, channel) => {
    const said = draw("title", {}, `${name}, channel ${channel + 1}: ${number.toFixed(3)}`);
    const size = { width: Math.max(0.5, width - (width > 4 ? 1 : 0)), height: STRIP.height };
    return draw("rect", { x: STRIP.left + channel * width, y, ...size, fill: signed(number, most) }, said);
  });
  return draw("g", {}, write(name, { x, y: middle, ...style }), ...boxes);
}

// All scores of the query's row, and the weights that the softmax makes of them; what it may not see is faint.
export function drawSoftmax({ scores, weights, labels, chosen, isHidden }, room) {
  const { faint, line } = look();
  const longest = 12 + widestOf(labels, 13);
  const half = within((room - longest - GAP - 48) / 2, 48, 220);
  const plan = { longest, half, scoresAt: longest + half / 2, weightsAt: longest + half + GAP, most: largest(scores) };
  const rows = labels.map((label, key) => {
    const isChosen = key === chosen;
    const parts = drawShare(plan, label, scores[key], weights[key], isChosen, ROW.top + key * ROW.step);
    return draw("g", { opacity: isHidden(key) ? 0.3 : 1 }, ...parts);
  });
  const [width, height] = [plan.weightsAt + half + 46, ROW.top + 6 + labels.length * ROW.step];
  const heading = { y: 14, "font-size": 12, "font-style": "italic", fill: faint };
  const axis = draw("line", { x1: plan.scoresAt, x2: plan.scoresAt, y1: 30, y2: height - 6, stroke: line });
  const headings = [
    write("scores", { ...heading, x: plan.scoresAt, "text-anchor": "middle" }),
    write("weights", { ...heading, x: plan.weightsAt }),
  ];
  const said = { role: "img", "aria-label": "Scores before the softmax and weights after it" };
  return picture(width, height, said, ...headings, axis, ...rows);
}

function drawShare({ longest, half, scoresAt, weightsAt, most }, label, score, weight, isChosen, top) {
  const { ink, faint, accent, warm } = look();
  const [y, middle] = [top + 4, top + ROW.step / 2];
  const name = {
    "text-anchor": "end",
    "font-size": 13,
    "font-weight": isChosen ? 700 : 400,
    fill: isChosen ? warm : ink,
  };
  const number = { y: middle, "font-size": 11, fill: isChosen ? warm : faint };
  const bar = { y, height: ROW.height, rx: 2 };
  const length = (Math.abs(score) / most) * (half / 2 - 4);
  const [from, fill] = score < 0 ? [scoresAt - length, warm] : [scoresAt, accent];
  return [
    textOf(label, { x: longest - 8, y: middle, ...name }),
    draw("rect", { ...bar, x: from, width: Math.max(0.5, length), fill }),
    write(score.toFixed(2), { ...number, x: scoresAt + half / 2 + 8 }),
    draw("rect", { ...bar, x: weightsAt, width: Math.max(0.5, half * weight), fill: heat(0.35 + 0.65 * weight) }),
    write(weight.toFixed(2), { ...number, x: weightsAt + half * weight + 6 }),
  ];
}

function largest(numbers) {
  return Math.max(...numbers.map(Math.abs), 1e-6);
}

function within(number, least, most) {
  return Math.max(least, Math.min(most, number));
}
