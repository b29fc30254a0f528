// The figures of one sentence, in order; each can be missing something, and says what.

import { drawProduct, drawSoftmax } from "./cell.js";
import { headColour, look } from "./colours.js";
import { make } from "./dom.js";
import { drawHeads, gather } from "./heads.js";
import { drawHeatMap, MOST_DRAWN } from "./heatmap.js";
import { Lines } from "./lines.js";
import { view } from "./link.js";
import { Panel } from "./panel.js";
import { asBoxes, drawPositions } from "./positions.js";
import { savers } from "./save.js";
import { Steps } from "./steps.js";
import { KINDS, merge, nameOfHead, together } from "./weights.js";
import * as words from "./words.js";

const NARROW = 620; // pixels, below which lines run from left to right
const PADDING = 78; // pixels of a panel that no figure can have

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
    this.steps = new Steps(this.panels.steps, (step) => set({ step, ...this.rowOfStep(step) }), look);
  }

  async render(weights) {
    this.weights = weights;
    const { kind, layer } = view;
    this.showSteps();
    this.showPositions().catch((error) => this.panels.positions.miss(`This could not be fetched: ${error.message}`));
    if (!weights.insight.attention[kind].layers) {
      this.panels.lines.miss(words.NO_ATTENTION);
      for (const name of ["map", "cell", "heads"]) this.panels[name].root.hidden = true;
      return;
    }
    this.sides = weights.sides(kind, view.unit);
    this.showHeads();
    const found = await weights.load(kind, layer);
    if (weights !== this.weights || kind !== view.kind || layer !== view.layer) return; // another is on view by now
    this.pieces = found;
    this.merged = found.weights.map((head) => merge(head, this.sides));
    this.showLines();
    this.showMap();
    await this.showCell();
  }

  // What a saved figure is called, and what stands in it beside its numbers.
  name(figure) {
    const head = typeof view.head === "number" ? `head-${view.head + 1}` : view.head;
    return `${figure}-${view.kind}-layer-${view.layer + 1}-${head}`;
  }

  facts(more) {
    const { q: text, translation, source, target } = this.weights.fields;
    const { kind, layer, head, unit } = view;
    const [queries, keys] = [this.sides.queries, this.sides.keys].map((side) => side.map(({ label }) => label));
    return { source, target, text, translation, kind, layer, head, unit, queries, keys, ...more };
  }

  showLines() {
    const panel = this.panels.lines;
    const room = panel.stage.clientWidth - 6;
    const isNarrow = room < NARROW;
    const heads = this.headsToDraw();
    const name = `${KINDS[view.kind].label} attention, layer ${view.layer + 1}`;
    const pin = ({ side, place }) => this.set({ query: null, key: null, [side]: place });
    const unpin = () => this.set({ query: null, key: null });
    const lines = new Lines(
      { ...this.sides, heads, room, isNarrow, pinned: this.pinned(), name },
      (said) => panel.say(said || words.POINT),
      (chosen) => (chosen ? pin(chosen) : unpin()),
    );
    const save = savers(this.name("lines"), {
      svg: () => lines.svg,
      json: () => this.facts({ weights: this.merged }),
    });
    const hasColours = view.head === "all" && heads.length > 1;
    panel.show(words.aboutLooks(view.kind, isNarrow, hasColours), lines.svg, save);
    const place = this.rowOfStep(view.step).query ?? null;
    const looked = place === null ? "" : `While it wrote this, it ${lines.describe({ side: "query", place })}.`;
    this.panels.steps.say(looked);
  }

  headsToDraw() {
    const heads = this.merged.map((weights, head) => ({ weights, colour: headColour(head, this.merged.length) }));
    if (view.head === "all") return heads;
    if (typeof view.head === "number") return [heads[view.head]];
    return [{ weights: together(this.merged, view.head), colour: look().accent }];
  }

  // The piece that is kept in sight; a link may name one that this sentence has not.
  pinned() {
    const { queries, keys } = this.sides;
    if (view.query !== null) return view.query < queries.length ? { side: "query", place: view.query } : null;
    if (view.key !== null) return view.key < keys.length ? { side: "key", place: view.key } : null;
    return null;
  }

  showMap() {
    const panel = this.panels.map;
    const weights = together(this.merged, view.head);
    const head = nameOfHead(view.head);
    const pinned = view.query !== null && view.key !== null ? view : null;
    const name = `Weights of ${KINDS[view.kind].label} attention, layer ${view.layer + 1}, ${head}`;
    const svg = drawHeatMap(
      { ...this.sides, weights, pinned, name },
      (said) => panel.say(said),
      (cell) => this.set(cell ?? { query: null, key: null }),
    );
    const isWide = svg.getAttribute("width") > this.root.clientWidth / 2 - PADDING;
    for (const each of [panel, this.panels.cell]) each.root.classList.toggle("wide", isWide);
    const save = savers(this.name("map"), { svg: () => svg, json: () => this.facts({ weights }) });
    panel.show(words.aboutMap(view.layer, head, weights, MOST_DRAWN), svg, save);
  }

  async showCell() {
    const panel = this.panels.cell;
    const { kind, layer } = view;
    const { head, row, column } = this.pieceOfCell();
    const asked = (this.asked = this.weights.compare(kind, layer, head));
    const { queries, keys, weights } = this.pieces;
    let compared;
    try {
      compared = (await asked).head;
    } catch (error) {
      if (error.status !== 400) throw error;
      panel.miss(words.NO_SCORES);
      return;
    }
    if (asked !== this.asked) return; // another cell is on view by now
    const isHidden = (key) => kind === "decoder" && key > row;
    const ofRow = { scores: compared.scores[row], weights: weights[head][row], labels: keys, chosen: column, isHidden };
    const room = panel.stage.clientWidth - 6;
    const softmax = drawSoftmax(ofRow, room);
    const facts = { head, query: queries[row], key: keys[column], ...compared, weights: weights[head] };
    const save = savers(this.name("cell"), { svg: () => softmax, json: () => this.facts(facts) });
    const about = words.aboutCell(kind, head, queries[row], keys[column]);
    panel.show(about, [drawProduct(compared, row, column, room), softmax], save);
    panel.say(words.reckoning(compared, weights[head][row][column], row, column));
  }

  // A cell of several heads or pieces is taken apart where it is largest; so is the map, until a cell is chosen.
  pieceOfCell() {
    const { queries, keys, weights } = this.pieces;
    const heads = typeof view.head === "number" ? [view.head] : [...weights.keys()];
    const rows = this.sides.queries[view.query]?.pieces ?? [...queries.keys()];
    const columns = this.sides.keys[view.key]?.pieces ?? [...keys.keys()];
    const places = heads.flatMap((head) => rows.flatMap((row) => columns.map((column) => ({ head, row, column }))));
    const weight = ({ head, row, column }) => weights[head][row][column];
    return places.reduce((best, place) => (weight(place) > weight(best) ? place : best));
  }

  showHeads() {
    const panel = this.panels.heads;
    const { kind, layer, head } = view;
    const choose = (layer, head) => this.set({ layer, head });
    const { rows, paint } = drawHeads({ weights: this.weights, kind, chosen: { layer, head } }, choose);
    const json = async () => ({ ...this.facts({}), kind, layer: null, head: null, layers: await paint() });
    const canvas = async () => {
      await paint();
      return gather(rows);
    };
    panel.show(words.HEADS, rows, savers(`heads-${kind}`, { canvas, json }));
    this.whenSeen(panel, () => paint().catch((error) => panel.miss(`These could not be fetched: ${error.message}`)));
  }

  whenSeen(panel, act) {
    this.watcher?.disconnect();
    const hear = (seen) => {
      if (!seen.some(({ isIntersecting }) => isIntersecting)) return;
      this.watcher.disconnect();
      act();
    };
    this.watcher = new IntersectionObserver(hear, { rootMargin: "400px" });
    this.watcher.observe(panel.root);
  }

  showSteps() {
    const { steps, beam } = this.weights.insight;
    const { q: text, target: lang } = this.weights.fields;
    this.steps.show({ steps, beam, lang }, view.step, savers("steps", { json: () => ({ text, steps, beam }) }));
  }

  // The row of the figures that belongs to a step, where what looks is what is being written.
  rowOfStep(step) {
    if (view.kind === "encoder" || !this.sides) return {};
    const query = this.sides.queries.findIndex(({ pieces }) => pieces.includes(step));
    return { query: query < 0 ? null : query, key: null };
  }

  async showPositions() {
    const { panels, weights } = this;
    const drawn = `${weights.fields.source} ${weights.fields.target} ${look().paper}`;
    if (drawn === this.drawn) return;
    const found = await weights.positions();
    if (weights !== this.weights) return;
    this.drawn = drawn;
    if (!found.table.length) {
      panels.positions.miss(words.aboutPositions(found));
      return;
    }
    const canvas = drawPositions(found, (said) => panels.positions.say(said));
    const save = savers("positions", { svg: () => asBoxes(found), canvas: () => canvas, json: () => found });
    panels.positions.show(words.aboutPositions(found), canvas, save);
  }
}
