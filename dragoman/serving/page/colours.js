// The colours of the figures, as numbers, so that a saved picture carries them.

// The plots of the command line have the same ones; those who are colour-blind can tell them apart.
const HEADS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6bb1", "#7a7a6e"];
const LOOKS = {
  light: {
    paper: "#fffdf9",
    ink: "#23211e",
    faint: "#8a847a",
    line: "#e2dcd1",
    accent: "#14506b",
    warm: "#b4532a",
    heat: ["#f4f1ea", "#8dbccb", "#0f4a63"],
    below: "#b4532a",
    above: "#14506b",
  },
  dark: {
    paper: "#1b1d22",
    ink: "#e9e6df",
    faint: "#8d8f96",
    line: "#33363d",
    accent: "#86c7de",
    warm: "#f0a67c",
    heat: ["#24272d", "#2c6f8a", "#d3f0f8"],
    below: "#e2906a",
    above: "#7cc0d8",
  },
};

export function look() {
  const chosen = document.documentElement.dataset.theme;
  const isDark = chosen === "dark" || (chosen !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
  return LOOKS[isDark ? "dark" : "light"];
}

export function headColour(head, heads) {
  return heads <= HEADS.length ? HEADS[head] : `hsl(${Math.round((360 * head) / heads)} 60% 50%)`;
}

// From 0 to 1: paper to deep blue, or the other way in the dark.
export function heat(weight) {
  const { heat } = look();
  const place = Math.min(1, Math.max(0, weight)) * (heat.length - 1);
  const below = Math.min(heat.length - 2, Math.floor(place));
  return mix(heat[below], heat[below + 1], place - below);
}

// What can be read on a cell of this weight.
export function inkOn(weight) {
  const [red, green, blue] = channels(heat(weight));
  return 0.3 * red + 0.59 * green + 0.11 * blue > 140 ? "#23211e" : "#ffffff";
}

// Numbers of both signs, by the largest of them.
export function signed(number, most) {
  const { paper, below, above } = look();
  return mix(paper, number < 0 ? below : above, Math.min(1, Math.abs(number) / (most || 1)));
}

function mix(one, other, share) {
  const [from, to] = [channels(one), channels(other)];
  const mixed = from.map((value, place) => Math.round(value + (to[place] - value) * share));
  return `#${mixed.map((value) => value.toString(16).padStart(2, "0")).join("")}`;
}

function channels(colour) {
  return [1, 3, 5].map((place) => parseInt(colour.slice(place, place + 2), 16));
}
