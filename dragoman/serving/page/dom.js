// Elements, made and found.

const SVG = "http://www.w3.org/2000/svg";

export function byId(id) {
  return document.getElementById(id);
}

export function make(tag, attributes = {}, ...children) {
  return furnish(document.createElement(tag), attributes, children);
}

export function draw(tag, attributes = {}, ...children) {
  return furnish(document.createElementNS(SVG, tag), attributes, children);
}

// A figure of its own size.
export function picture(width, height, attributes, ...children) {
  return draw("svg", { width, height, viewBox: `0 0 ${width} ${height}`, ...attributes }, ...children);
}

// Words in a figure, with their middle at y.
export function write(words, attributes) {
  return draw("text", { "dominant-baseline": "central", ...attributes }, words);
}

// Whether a key means: this one.
export function isPress(event) {
  if (event.key !== "Enter" && event.key !== " ") return false;
  event.preventDefault();
  return true;
}

// Functions become listeners, true a bare attribute; what is null or false is left out.
function furnish(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

// A choice of one: radio buttons, which the arrow keys move through.
export function choice(name, legend, options, chosen, choose) {
  const labels = options.map(({ value, label, title, disabled, colour }) => {
    const focus = { "data-focus": `${name}-${value}` };
    const input = make("input", { type: "radio", name, value, disabled, ...focus, change: () => choose(value) });
    input.checked = String(value) === String(chosen);
    const swatch = colour
      ? draw("svg", { class: "swatch", viewBox: "0 0 8 8" }, draw("circle", { cx: 4, cy: 4, r: 4, fill: colour }))
      : null;
    return make("label", { title }, input, make("span", {}, swatch, label));
  });
  return make("fieldset", { class: "choice" }, make("legend", {}, legend), make("div", {}, ...labels));
}

export function wait(milliseconds) {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}

// New children in place of the old; the focus stays on what is called the same.
export function renew(container, ...children) {
  const focused = container.contains(document.activeElement) ? document.activeElement.dataset.focus : null;
  container.replaceChildren(...children.filter((child) => child));
  if (focused) container.querySelector(`[data-focus="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
}

// Of many things one is reached by Tab and the others from there with the arrow keys.
export function rove(event, elements, columns) {
  const moves = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns };
  const place = elements.indexOf(event.currentTarget);
  let next = place + (moves[event.key] ?? 0);
  if (event.key === "Home") next = 0;
  if (event.key === "End") next = elements.length - 1;
  if (next === place || !elements[next]) return;
  event.preventDefault();
  event.currentTarget.setAttribute("tabindex", "-1");
  elements[next].setAttribute("tabindex", "0");
  elements[next].focus();
}
