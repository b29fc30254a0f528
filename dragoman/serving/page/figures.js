// The figures of one sentence, in order; each can be missing something, and says what.

import { drawProduct, drawSoftmax, reckon } from "./cell.js";
import { headColour, look } from "./colours.js";
import { make } from "./dom.js";
import { drawHeads, gather } from "./heads.js";
import { drawHeatMap, isCut } from "./heatmap.js";
import { Lines } from "./lines.js";
import { view } from "./link.js";
import { inWords } from "./pieces.js";
import { Panel } from "./panel.js";
import { asBoxes, describePositions, drawPositions } from "./positions.js";
import { savers } from "./save.js";
import { Steps } from "./steps.js";
import { KINDS, merge, nameOfHead, together } from "./weights.js";

const NARROW = 620; // pixels, below which lines run from left to right

const LOOKS = {
  cross: "To write each piece of the translation (below), the model looks at the source (above) and takes from it what it needs.",
  encoder: "Each piece of the source (below) looks at all of the source (above), and learns from its neighbours what it means here.",
  decoder: "Each piece that is being written (below) looks back at what had been written before it (above), never ahead.",
};

export class Figures {
  // `set` changes what is on view; `look` is told of another translation to look into.
  constructor(set, look) {
    this.set = set;
    this.panels = {
      lines: new Panel("lines", "Who looks at what"),
      map: new Panel("map", "The same in numbers"),
      cell: new Panel("cell", "One weight, taken apart"),
      heads: new Panel("heads", "All heads"),
      steps: new Panel("steps", "Step by step"),
      positions: new Panel("positions", "Where each piece stands"),
    };
    this.root = make("div", { class: "figures" }, ...Object.values(this.panels).map((panel) => panel.root));
    this.steps = new Steps(this.panels.steps, (step) => set({ step, ...this.pinOfStep(step) }), look);
  }

  async render(weights) {
    this.weights = weights;
    const { kind, layer } = view;
    this.showSteps();
    this.showPositions().catch((error) => this.panels.positions.miss(`This could not be fetched: ${error.message}`));
    if (!weights.insight.attention[kind].layers) {
      this.missAttention();
      return;
    }
    this.sides = weights.sides(kind, view.unit);
    this.showHeads();
    const found = await weights.load(kind, layer);
    if (weights !== this.weights || kind !== view.kind || layer !== view.layer) return; // something else is on view by now
    this.pieces = found;
    this.merged = found.weights.map((head) => merge(head, this.sides));
    this.showLines();
    this.showMap();
    await this.showCell();
  }

  missAttention() {
    this.panels.lines.miss("This model writes without attention: what it knows of the source it carries along. There is nothing to draw here.");
    for (const name of ["map", "cell", "heads"]) this.panels[name].root.hidden = true;
  }

  name(figure) {
    const head = typeof view.head === "number" ? `head-${view.head + 1}` : view.head;
    return `${figure}-${view.kind}-layer-${view.layer + 1}-${head}`;
  }

  shown() {
    return together(this.merged, view.head);
  }

  facts(more) {
    const labels = (side) => side.map(({ label }) => label);
    const { text, translation, ...pair } = { ...this.weights.fields, text: this.weights.fields.q };
    const place = { kind: view.kind, layer: view.layer, head: view.head, unit: view.unit };
    return { source: pair.source, target: pair.target, text, translation, ...place, queries: labels(this.sides.queries), keys: labels(this.sides.keys), ...more };
  }

  showLines() {
    const count = this.merged.length;
    const heads = this.merged.map((weights, head) => ({ weights, colour: headColour(head, count), head }));
    const drawn = view.head === "all" ? heads : typeof view.head === "number" ? [heads[view.head]] : [{ weights: this.shown(), colour: look().accent }];
    const panel = this.panels.lines;
    const pinned = view.query !== null ? { side: "query", place: view.query } : view.key !== null ? { side: "key", place: view.key } : null;
    const room = panel.stage.clientWidth - 6;
    const isNarrow = room < NARROW;
    const name = `${KINDS[view.kind].label} attention, layer ${view.layer + 1}`;
    const pin = (chosen) => this.set({ query: chosen?.side === "query" ? chosen.place : null, key: chosen?.side === "key" ? chosen.place : null });
    const lines = new Lines({ ...this.sides, heads: drawn, room, isNarrow, pinned: isWithin(pinned, this.sides), name }, (words) => panel.say(words || "Point at a piece to see where it looks; choose it to keep it."), pin);
    const query = this.pinOfStep(view.step).query ?? null;
    this.panels.steps.say(query === null ? "" : `While it wrote this, it ${lines.describe({ side: "query", place: query })}.`);
    const words = LOOKS[view.kind].replaceAll("below", isNarrow ? "right" : "below").replaceAll("above", isNarrow ? "left" : "above");
    const colours = view.head === "all" && count > 1 ? " A head is a way of looking of its own: each has its colour." : "";
    panel.show(`${words} The thicker a line, the more it takes.${colours}`, lines.svg, savers(this.name("lines"), { svg: () => lines.svg, json: () => this.facts({ weights: this.merged }) }));
  }

  showMap() {
    const panel = this.panels.map;
    const weights = this.shown();
    const pinned = view.query !== null && view.key !== null ? view : null;
    const name = `Weights of ${KINDS[view.kind].label} attention, layer ${view.layer + 1}, ${nameOfHead(view.head)}`;
    const svg = drawHeatMap({ ...this.sides, weights, pinned, name }, (said) => panel.say(said), (cell) => this.set(cell ?? { query: null, key: null }));
    const isWide = svg.getAttribute("width") > this.root.clientWidth / 2 - 78;
    for (const each of [panel, this.panels.cell]) each.root.classList.toggle("wide", isWide);
    const cut = isCut(this.sides) ? " Only the first 96 pieces of each side are drawn; JSON has all." : "";
    const isWhole = weights.every((row) => Math.abs(row.reduce((sum, weight) => sum + weight, 0) - 1) < 0.02);
    const sum = isWhole ? " Each row adds up to 1." : "";
    panel.show(`Rows look at columns: layer ${view.layer + 1}, ${nameOfHead(view.head)}.${sum} Choose a cell to take it apart.${cut}`, svg, savers(this.name("map"), { svg: () => svg, json: () => this.facts({ weights }) }));
  }

  showHeads() {
    const { kind, layer, head } = view;
    const { rows, paint } = drawHeads({ weights: this.weights, kind, chosen: { layer, head } }, (layer, head) => this.set({ layer, head }));
    const panel = this.panels.heads;
    const picture = async () => (await paint(), gather(rows));
    const json = async () => ({ ...this.facts({}), kind, layer: null, head: null, layers: await paint() });
    panel.show("Every head has learned to look in its own way: one at the word that is being translated, one at a neighbour, one at nothing in particular. Choose one to see it large.", rows, savers(`heads-${kind}`, { canvas: picture, json }));
    this.watcher?.disconnect();
    this.watcher = new IntersectionObserver(([seen]) => {
      if (!seen.isIntersecting) return;
      this.watcher.disconnect();
      paint().catch((error) => panel.miss(`These could not be fetched: ${error.message}`));
    }, { rootMargin: "400px" });
    this.watcher.observe(panel.root);
  }

  showSteps() {
    const { steps, beam } = this.weights.insight;
    const save = savers("steps", { json: () => ({ text: this.weights.fields.q, steps, beam }) });
    this.steps.show({ steps, beam, lang: this.weights.fields.target }, view.step, save);
  }

  // The row of the figures that belongs to a step, where what looks is what is being written.
  pinOfStep(step) {
    if (view.kind === "encoder" || !this.sides) return {};
    const query = this.sides.queries.findIndex(({ pieces }) => pieces.includes(step));
    return { query: query < 0 ? null : query, key: null };
  }

  async showPositions() {
    const panel = this.panels.positions;
    const weights = this.weights;
    if (this.placed === weights && this.paper === look().paper) return;
    [this.placed, this.paper] = [weights, look().paper];
    const found = await weights.positions();
    if (weights !== this.weights) return;
    if (!found.table.length) {
      panel.miss(describePositions(found));
      return;
    }
    const canvas = drawPositions(found, (words) => panel.say(words));
    panel.show(`${describePositions(found)} A row is a place, a column a channel.`, canvas, savers("positions", { svg: () => asBoxes(found), canvas: () => canvas, json: () => found }));
  }

  async showCell() {
    const panel = this.panels.cell;
    const { head, row, column } = this.pieceOfCell();
    const { kind, layer, query, key } = view;
    let found;
    try {
      found = (await this.weights.compare(kind, layer, head)).head;
    } catch (error) {
      if (error.status !== 400) throw error;
      panel.miss("This model does not compare queries with keys as the Transformer does: there are no scores to show.");
      return;
    }
    if (kind !== view.kind || layer !== view.layer || query !== view.query || key !== view.key) return;
    const weights = this.pieces.weights[head];
    const [asking, asked] = [this.pieces.queries[row], this.pieces.keys[column]];
    const room = panel.stage.clientWidth - 6;
    const product = drawProduct(found, row, column, room);
    const softmax = drawSoftmax(found, weights, this.pieces.keys, row, column, (other) => kind === "decoder" && other > row, room);
    const words = `Head ${head + 1} makes a query q of “${inWords(asking)}” and a key k of “${inWords(asked)}”. Multiplied channel by channel and added up, they say how well the two fit. The softmax makes weights of a row of such scores, which add up to 1.`;
    const json = () => this.facts({ head, query: asking, key: asked, ...found, weights });
    panel.show(words, [product, softmax], savers(`${this.name("cell")}`, { svg: () => softmax, json }));
    panel.say(reckon(found, weights[row][column], row, column));
  }

  // A cell of several heads or pieces is taken apart where it is largest; so is the map, until a cell is chosen.
  pieceOfCell() {
    const heads = typeof view.head === "number" ? [view.head] : this.pieces.weights.map((_, head) => head);
    const rows = (this.sides.queries[view.query] ?? { pieces: this.pieces.queries.map((_, row) => row) }).pieces;
    const columns = (this.sides.keys[view.key] ?? { pieces: this.pieces.keys.map((_, column) => column) }).pieces;
    const places = heads.flatMap((head) => rows.flatMap((row) => columns.map((column) => ({ head, row, column }))));
    const weight = ({ head, row, column }) => this.pieces.weights[head][row][column];
    return places.reduce((best, place) => (weight(place) > weight(best) ? place : best));
  }
}

function isWithin(pinned, { queries, keys }) {
  return pinned && pinned.place < (pinned.side === "query" ? queries : keys).length ? pinned : null;
}
