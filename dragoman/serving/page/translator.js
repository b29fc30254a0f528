// The two panes: translated while one types, and only the answer to the latest text is ever shown.

import { ask } from "./api.js";
import { byId, make } from "./dom.js";
import { canSwap, currentSource, showDetected, swapLanguages } from "./languages.js";
import { linkOfView, remember, view } from "./link.js";
import { clearNotice, explain } from "./notice.js";

const ALTERNATIVES = 3;

let settings, shown;
let timer = null;
let running = null; // the request that is under way
let answer = null; // what the latest request found

export function startTranslator(given, whenShown) {
  settings = given;
  shown = whenShown;
  const box = byId("source-text");
  box.value = view.text;
  box.addEventListener("input", () => {
    view.text = box.value;
    view.sentence = view.step = 0;
    view.query = view.key = null;
    clearTimeout(timer);
    timer = setTimeout(translate, view.text.trim() ? settings.frontendTimeout : 0);
    showCount();
  });
  byId("clear").addEventListener("click", () => put(""));
  byId("swap").addEventListener("click", swap);
  byId("copy").addEventListener("click", () => copy(byId("target-text").textContent, "Copied"));
  byId("link").addEventListener("click", () => copy(new URL(linkOfView(), location.href).href, "Link copied"));
}

export async function translate() {
  clearTimeout(timer);
  running?.abort();
  clearNotice();
  remember();
  showCount();
  if (!view.text.trim()) {
    running = null;
    show(null);
    return;
  }
  const mine = (running = new AbortController());
  byId("target-text").setAttribute("aria-busy", "true");
  try {
    const found = await ask("translate", fields(), mine.signal);
    if (mine === running) show(found);
  } catch (error) {
    if (mine !== running || error.name === "AbortError") return;
    byId("target-text").removeAttribute("aria-busy");
    explain(error, translate);
  }
}

function fields() {
  const alternatives = Math.min(ALTERNATIVES, settings.alternatives);
  return { q: view.text, source: view.source, target: view.target, alternatives, scores: true, sentences: true };
}

function show(found) {
  answer = found;
  showDetected(found?.detectedLanguage ?? null);
  byId("source-text").lang = found ? currentSource() : "";
  byId("target-text").lang = view.target;
  byId("target-text").removeAttribute("aria-busy");
  byId("said").textContent = (found?.warnings ?? []).join("; ");
  choose(found?.translatedText ?? "");
}

// Show this translation, and the others beside it.
function choose(text) {
  byId("target-text").textContent = text;
  byId("copy").disabled = byId("link").disabled = !text;
  const others = answer ? [answer.translatedText, ...(answer.alternatives ?? [])].filter((each) => each !== text) : [];
  const buttons = others.map((each) =>
    make("li", {}, make("button", { type: "button", dir: "auto", lang: view.target, click: () => choose(each) }, each)),
  );
  byId("alternatives").hidden = !buttons.length;
  byId("alternatives").replaceChildren(make("h2", {}, "Or"), make("ul", {}, ...buttons));
  shown(answer && pairs(text));
}

// Each sentence with its translation; where another translation of several sentences is shown, that of the best.
function pairs(text) {
  const { translatedText, sentences } = answer;
  const [source, target] = [view.text, translatedText].map((each) => Array.from(each)); // as the server counts
  const isAnother = sentences.length === 1 && text !== translatedText;
  return sentences.map((each) => ({
    source: currentSource(),
    target: view.target,
    text: source.slice(...each.source).join(""),
    translation: isAnother ? text.trim() : target.slice(...each.target).join(""),
  }));
}

function swap() {
  if (!canSwap()) return;
  const text = byId("target-text").textContent || view.text;
  swapLanguages();
  put(text);
}

function put(text) {
  view.text = byId("source-text").value = text;
  view.sentence = view.step = 0;
  view.query = view.key = null;
  byId("source-text").focus();
  translate();
}

function showCount() {
  const length = Array.from(view.text).length;
  byId("count").textContent = length
    ? `${length.toLocaleString("en")} of ${settings.charLimit.toLocaleString("en")}`
    : "";
  byId("count").classList.toggle("over", length > settings.charLimit);
  byId("clear").disabled = !view.text;
}

async function copy(text, said) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    copyByHand(text); // without TLS, browsers offer no clipboard but on this machine
  }
  byId("said").textContent = said;
  setTimeout(() => byId("said").textContent === said && (byId("said").textContent = ""), 2000);
}

function copyByHand(text) {
  const box = make("textarea", { class: "hidden" });
  box.value = text;
  const focused = document.activeElement;
  document.body.append(box);
  box.select();
  document.execCommand("copy");
  box.remove();
  focused?.focus();
}
