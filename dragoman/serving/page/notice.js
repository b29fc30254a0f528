// What went wrong, in words, and when it will be tried again.

import { byId, make } from "./dom.js";
import { Refusal } from "./api.js";

let timer = null;

export function clearNotice() {
  clearInterval(timer);
  byId("notice").hidden = true;
  byId("notice").replaceChildren();
}

export function say(text, ...more) {
  clearNotice();
  byId("notice").append(make("p", {}, text, ...more));
  byId("notice").hidden = false;
}

// Say what a refusal means; where waiting helps, try again after a while.
export function explain(error, tryAgain) {
  if (!(error instanceof Refusal)) {
    say("The page made a mistake. Reload it, please.");
    throw error;
  }
  if (error.wantsKey) {
    const isWrong = error.status === 403;
    say(isWrong ? "The server does not know this API key." : "The server asks for an API key.");
    byId("key-form").hidden = false;
    return;
  }
  say(wordsFor(error));
  const canPass = [0, 429, 503].includes(error.status);
  if (canPass && tryAgain) countDown(error.seconds ?? 5, tryAgain);
}

function wordsFor({ status, message }) {
  if (status === 0) return "The server does not answer. It may have been stopped, or the network is down.";
  if (status === 413) return `This is more than the server takes at once: ${bare(message)}.`;
  if (status === 429) return `The server has much to do (${bare(message)}).`;
  if (status === 503) return "The server did not answer in time.";
  return `${bare(message)}.`;
}

function bare(message) {
  const words = message.replace(/^Invalid request: /, "").replace(/\.$/, "");
  return words.charAt(0).toUpperCase() + words.slice(1);
}

function countDown(seconds, tryAgain) {
  let left = Math.ceil(seconds);
  const told = make("span", { "aria-hidden": "true" }, ` Trying again in ${left} s. `);
  const now = make("button", { type: "button", class: "quiet", click: go }, "Try now");
  byId("notice").append(make("p", {}, told, now));
  timer = setInterval(() => {
    left -= 1;
    told.textContent = ` Trying again in ${left} s. `;
    if (left <= 0) go();
  }, 1000);

  function go() {
    clearNotice();
    tryAgain();
  }
}
