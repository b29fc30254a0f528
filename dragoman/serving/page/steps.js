// Decoding in slow motion: what was there, what could have come next, and what search went on with.

import { make } from "./dom.js";
import { beginsWord, spanOf } from "./pieces.js";
import { STEPS } from "./words.js";

export class Steps {
  // `moved` hears of every step that is gone to, `look` of another translation that is to be looked into.
  constructor(panel, moved, look) {
    this.panel = panel;
    this.moved = moved;
    this.look = look;
    this.slider = make("input", {
      type: "range",
      min: 1,
      id: "step",
      input: () => this.go(this.slider.valueAsNumber - 1),
    });
    this.number = make("output", { for: "step", class: "number" });
    this.back = make(
      "button",
      { type: "button", class: "round", "aria-label": "A step back", click: () => this.go(this.step - 1) },
      "‹",
    );
    this.on = make(
      "button",
      { type: "button", class: "round", "aria-label": "A step on", click: () => this.go(this.step + 1) },
      "›",
    );
    const label = make("label", { for: "step" }, "Step");
    this.bar = make("div", { class: "slider" }, label, this.back, this.slider, this.on, this.number);
    this.written = make("p", { class: "written", dir: "auto" });
    this.candidates = make("div");
    this.beam = make("div");
  }

  show({ steps, beam, lang }, step, save) {
    if (steps === this.steps) {
      if (step !== this.step) this.render(step);
      return;
    }
    Object.assign(this, { steps, living: beam.living, ended: beam.ended });
    this.written.lang = lang;
    this.slider.max = steps.length;
    const columns = make("div", { class: "columns" }, this.candidates, this.beam);
    this.panel.show(STEPS, [this.bar, this.written, columns], save);
    this.render(step);
  }

  go(step) {
    this.render(step);
    this.moved(this.step);
  }

  render(step) {
    this.step = Math.max(0, Math.min(this.steps.length - 1, step));
    const { text, chosen, candidates } = this.steps[this.step];
    this.slider.value = this.step + 1;
    this.slider.setAttribute("aria-valuetext", `step ${this.step + 1} of ${this.steps.length}: ${chosen.piece}`);
    this.number.textContent = `${this.step + 1} of ${this.steps.length}`;
    this.back.disabled = this.step === 0;
    this.on.disabled = this.step === this.steps.length - 1;
    const gap = text && !beginsWord(chosen.piece) ? "" : " ";
    this.written.replaceChildren(
      make("span", { class: "faint" }, text || "(nothing yet)"),
      gap,
      make("mark", {}, spanOf(chosen.piece)),
    );
    this.renderCandidates(candidates, chosen);
    this.renderBeam();
  }

  renderCandidates(candidates, chosen) {
    const isAmong = candidates.some(({ piece }) => piece === chosen.piece);
    const rows = [...candidates, ...(isAmong ? [] : [chosen])].map(({ piece, probability }) =>
      make(
        "tr",
        { class: piece === chosen.piece ? "chosen" : null },
        make("th", { scope: "row" }, spanOf(piece)),
        make("td", { class: "bar" }, meter(probability)),
        make("td", { class: "figure" }, percent(probability)),
      ),
    );
    const caption = make("caption", {}, "Likeliest next pieces");
    this.candidates.replaceChildren(make("table", { class: "candidates" }, caption, make("tbody", {}, ...rows)));
  }

  renderBeam() {
    const living = this.living[this.step] ?? [];
    const rows = living.map(({ text, logProbability, isShown }) => row(text, logProbability.toFixed(2), isShown, null));
    const isLast = this.step === this.steps.length - 1;
    const done = isLast ? this.ended : this.ended.filter(({ step }) => step <= this.step);
    const ended = done.map(({ text, score }) => row(text, score.toFixed(2), false, () => this.look(text)));
    const empty = rows.length ? [] : [make("tr", {}, make("td", { class: "faint" }, "The search is over."))];
    const tables = [
      make(
        "table",
        { class: "beam" },
        make("caption", {}, "Beginnings kept alive, by log-probability"),
        make("tbody", {}, ...rows, ...empty),
      ),
    ];
    if (ended.length)
      tables.push(
        make(
          "table",
          { class: "beam" },
          make(
            "caption",
            {},
            isLast ? "What it found, by score: choose one to look into it" : "Ended by now, by score",
          ),
          make("tbody", {}, ...ended),
        ),
      );
    this.beam.replaceChildren(...tables);
  }
}

function row(text, number, isShown, click) {
  const shown = text || "(nothing)";
  const what = click
    ? make("button", { type: "button", class: "quiet", dir: "auto", click }, shown)
    : make("span", { dir: "auto" }, shown);
  return make(
    "tr",
    { class: isShown ? "chosen" : null },
    make("th", { scope: "row" }, what),
    make("td", { class: "figure" }, number),
  );
}

function meter(share) {
  const bar = make("span", { "aria-hidden": "true" });
  bar.style.width = `${Math.max(0.5, 100 * share)}%`;
  return bar;
}

function percent(share) {
  return share >= 0.0995 || share === 0
    ? `${(100 * share).toFixed(0)} %`
    : `${(100 * share).toFixed(share < 0.001 ? 2 : 1)} %`;
}
