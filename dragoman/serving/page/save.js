// Figures as files: SVG as it stands, PNG at twice its size, and the numbers as JSON.

import { look } from "./colours.js";
import { draw, make } from "./dom.js";

export function savers(name, { svg, canvas, json }) {
  const button = (kind, save) =>
    make("button", { type: "button", class: "quiet", "aria-label": `Save ${name} as ${kind}`, click: save }, kind);
  const buttons = [
    svg && button("SVG", () => keep(`${name}.svg`, new Blob([textOf(svg())], { type: "image/svg+xml" }))),
    (svg || canvas) &&
      button("PNG", async () => keep(`${name}.png`, await (canvas ? blobOf(await canvas()) : raster(svg())))),
    button("JSON", async () =>
      keep(`${name}.json`, new Blob([JSON.stringify(await json(), null, 1)], { type: "application/json" })),
    ),
  ];
  return make("div", { class: "save" }, make("span", {}, "Save "), ...buttons.filter((each) => each));
}

function keep(name, blob) {
  const link = make("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

// A copy that needs no style sheet, on paper of its own.
function textOf(svg) {
  const copy = svg.cloneNode(true);
  copy.setAttribute("font-family", "system-ui, 'DejaVu Sans', sans-serif");
  for (const name of ["role", "tabindex", "data-focus", "class"]) {
    for (const each of copy.querySelectorAll(`[${name}]`)) each.removeAttribute(name);
  }
  copy.prepend(draw("rect", { width: "100%", height: "100%", fill: look().paper }));
  return new XMLSerializer().serializeToString(copy);
}

async function raster(svg) {
  const url = URL.createObjectURL(new Blob([textOf(svg)], { type: "image/svg+xml" }));
  const image = new Image();
  image.src = url;
  await image.decode();
  URL.revokeObjectURL(url);
  const canvas = make("canvas", { width: 2 * svg.getAttribute("width"), height: 2 * svg.getAttribute("height") });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return blobOf(canvas);
}

function blobOf(canvas) {
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}
