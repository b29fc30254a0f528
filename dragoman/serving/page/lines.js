// Figures 3 to 5 of the paper: lines from each piece that looks to what it looks at, a colour a head.

import { draw, isPress, picture, rove } from "./dom.js";
import { inWords, textOf, widestOf } from "./pieces.js";

const STEP = { across: [30, 62], down: [26, 30] }; // from piece to piece, at least and at most
const GAP = { across: [190, 190], down: [70, 150] }; // between the two sides
const FAINTEST = 0.02; // a line of less weight is not drawn
const FONT = 15;

// `heads` are the weights to draw, each with its colour; `report` hears what is pointed at, `pin` what is chosen.
export class Lines {
  constructor({ queries, keys, heads, room, isNarrow, pinned, name }, report, pin) {
    Object.assign(this, { queries, keys, heads, pinned, report, pin });
    this.way = isNarrow ? "down" : "across";
    const labels = [...queries, ...keys].map(({ label }) => label);
    this.label = 16 + widestOf(labels, FONT);
    const count = Math.max(queries.length, keys.length);
    const [least, most] = STEP[this.way];
    this.step = isNarrow ? least : Math.max(least, Math.min(most, Math.floor(room / count)));
    this.length = this.step * count;
    const [near, far] = GAP[this.way];
    this.depth = 2 * this.label + Math.max(near, Math.min(far, room - 2 * this.label));
    const [width, height] = isNarrow ? [this.depth, this.length] : [this.length, this.depth];
    this.strips = { key: [], query: [] };
    this.paths = this.drawPaths();
    const sides = ["key", "query"].map((side) => this.drawSide(side));
    const [back, front] = ["back", "front"].map((part) => sides.map((side) => side[part]));
    const lines = this.paths.map(({ line }) => line);
    this.svg = picture(width, height, { role: "group", "aria-label": name }, ...back, ...lines, ...front);
    this.show(pinned);
  }

  // A point of the figure: along its sides, and from the keys' side to the queries'.
  point(along, depth) {
    return this.way === "down" ? [depth, along] : [along, depth];
  }

  middle(side, place) {
    const count = side === "key" ? this.keys.length : this.queries.length;
    return ((place + 0.5) * this.length) / count;
  }

  drawPaths() {
    const [from, to] = [this.label, this.depth - this.label];
    const share = (0.6 * Math.min(40, this.step)) / this.heads.length;
    const thickest = Math.min(4, Math.max(1.6, share));
    return this.heads.flatMap(({ weights, colour }, head) => {
      const beside = (head - (this.heads.length - 1) / 2) * share; // so that heads that agree are all seen
      const drawLine = (query, key, weight) => {
        const [x1, y1] = this.point(this.middle("key", key) + beside, from);
        const [x2, y2] = this.point(this.middle("query", query) + beside, to);
        const stroke = { stroke: colour, "stroke-width": 0.6 + thickest * weight, "stroke-linecap": "round" };
        return { query, key, weight, line: draw("line", { x1, y1, x2, y2, ...stroke }) };
      };
      const looks = weights.flatMap((row, query) => row.map((weight, key) => [query, key, weight]));
      return looks.filter(([, , weight]) => weight >= FAINTEST).map((look) => drawLine(...look));
    });
  }

  drawSide(side) {
    const units = side === "key" ? this.keys : this.queries;
    const tokens = units.map((unit, place) => this.drawToken(side, unit, place));
    const back = units.map((_, place) => this.drawStrips(side, place));
    tokens.forEach((token) => token.addEventListener("keydown", (event) => rove(event, tokens, 1)));
    const label = side === "key" ? "what is looked at" : "what looks";
    return { back: draw("g", {}, ...back), front: draw("g", { role: "group", "aria-label": label }, ...tokens) };
  }

  // Behind each piece a strip for each head, as in the paper: seen as much as the head looks.
  drawStrips(side, place) {
    const width = (this.step - 4) / this.heads.length;
    const begin = this.middle(side, place) - this.step / 2 + 2;
    const depth = side === "key" ? 0 : this.depth - this.label;
    this.strips[side][place] = this.heads.map(({ colour }, head) => {
      const [x, y] = this.point(begin + head * width, depth);
      const [w, h] = this.point(width, this.label);
      return draw("rect", { x, y, width: w, height: h, fill: colour, opacity: 0 });
    });
    return draw("g", {}, ...this.strips[side][place]);
  }

  drawToken(side, unit, place) {
    const edge = side === "key" ? this.label - 6 : this.depth - this.label + 6;
    const [x, y] = this.point(this.middle(side, place), edge);
    const isAcross = this.way === "across";
    const anchor = (side === "key") === isAcross ? "start" : "end";
    const turn = isAcross ? `rotate(-90 ${x} ${y})` : null;
    const text = textOf(unit.label, { x, y, transform: turn, "text-anchor": anchor, "font-size": FONT });
    const begin = side === "key" ? 0 : this.depth - this.label;
    const [left, top] = this.point(this.middle(side, place) - this.step / 2, begin);
    const [width, height] = this.point(this.step, this.label);
    const area = draw("rect", { class: "area", x: left, y: top, width, height, fill: "transparent", rx: 4 });
    const own = { side, place };
    const isPinned = isSame(own, this.pinned);
    const choose = () => this.pin(isPinned ? null : own);
    const names = { "aria-label": `${inWords(unit.label)}: ${this.describe(own)}`, "aria-pressed": String(isPinned) };
    const token = { class: "token", role: "button", tabindex: place ? -1 : 0, "data-focus": `${side}-${place}` };
    const hears = {
      pointerenter: () => this.show(own),
      pointerleave: () => this.show(this.pinned),
      focus: () => this.show(own),
      blur: () => this.show(this.pinned),
      click: choose,
      keydown: (event) => isPress(event) && choose(),
    };
    return draw("g", { ...token, ...names, ...hears }, area, text);
  }

  // Bring out one piece, or none.
  show(active) {
    for (const { query, key, weight, line } of this.paths) {
      const isMeant = active && active.place === (active.side === "key" ? key : query);
      line.setAttribute("opacity", active ? (isMeant ? 0.35 + 0.65 * weight : 0.03) : 0.04 + 0.86 * weight);
    }
    for (const side of ["key", "query"]) {
      this.strips[side].forEach((strips, place) =>
        strips.forEach((strip, head) => strip.setAttribute("opacity", this.strength(active, side, place, head))),
      );
    }
    this.report(active ? `“${inWords(this.unit(active).label)}” ${this.describe(active)}` : "");
  }

  strength(active, side, place, head) {
    if (!active) return 0;
    if (active.side === side) return active.place === place ? 0.16 : 0;
    const [query, key] = side === "key" ? [active.place, place] : [place, active.place];
    return 0.75 * this.heads[head].weights[query][key];
  }

  unit({ side, place }) {
    return (side === "key" ? this.keys : this.queries)[place];
  }

  // In words: what it looked at most, or who looked at it most, over the heads that are shown.
  describe({ side, place }) {
    const others = side === "key" ? this.queries : this.keys;
    const weights = others.map((_, other) => this.mean(side === "key" ? [other, place] : [place, other]));
    const most = weights
      .map((weight, other) => ({ weight, label: others[other].label }))
      .filter(({ weight }) => weight >= 0.05);
    most.sort((one, other) => other.weight - one.weight);
    const listed = most
      .slice(0, 4)
      .map(({ weight, label }) => `“${inWords(label)}” ${weight.toFixed(2)}`)
      .join(" · ");
    return `${side === "key" ? "was looked at by" : "looked at"} ${listed || "nothing much"}`;
  }

  mean([query, key]) {
    return this.heads.reduce((sum, head) => sum + head.weights[query][key], 0) / this.heads.length;
  }
}

function isSame(one, other) {
  return Boolean(other) && one.side === other.side && one.place === other.place;
}
