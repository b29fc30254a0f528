// A figure with its heading, a few words, what is read off it, and ways to save it.

import { make, renew } from "./dom.js";

export class Panel {
  constructor(id, heading) {
    this.words = make("p", { class: "words" });
    this.stage = make("div", { class: "stage" });
    this.readout = make("p", { class: "readout", role: "status" });
    this.below = make("div", { class: "below" });
    const title = make("h3", { id: `${id}-heading` }, heading);
    const parts = [title, this.words, this.stage, this.readout, this.below];
    this.root = make("section", { id, class: "panel", "aria-labelledby": `${id}-heading` }, ...parts);
  }

  show(words, picture, below = null) {
    this.root.hidden = false;
    this.words.replaceChildren(...[words].flat());
    renew(this.stage, ...[picture].flat());
    this.below.replaceChildren(...(below ? [below] : []));
  }

  // Say what this figure cannot show, and why.
  miss(words) {
    this.show(words, [], null);
    this.say("");
  }

  say(words) {
    this.readout.textContent = words;
  }
}
