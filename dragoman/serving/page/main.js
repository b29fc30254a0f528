// The page: what it asks first, and who hears of what.

import { get, hasKey, useKey } from "./api.js";
import { byId } from "./dom.js";
import { startFiles } from "./files.js";
import { lookInside, startInside } from "./inside.js";
import { startLanguages } from "./languages.js";
import { readLink } from "./link.js";
import { clearNotice, explain } from "./notice.js";
import { startTranslator, translate } from "./translator.js";

async function start() {
  let settings, languages, health;
  try {
    [settings, languages, health] = await Promise.all(
      ["frontend/settings", "languages", "health"].map((each) => get(each)),
    );
  } catch (error) {
    explain(error, start);
    return;
  }
  clearNotice();
  readLink();
  byId("here").textContent = location.host;
  byId("key-form").hidden = !settings.keyRequired || hasKey();
  startLanguages(languages, settings.language.target.code, translate);
  startInside();
  startTranslator(settings, lookInside);
  startFiles(settings);
  showEngine(health.models);
  translate();
}

function showEngine(models) {
  const words = new Set(models.map(({ engine, precision, device }) => `${engine}, ${precision}, ${device}`));
  byId("engine").textContent = [...words].join(" · ");
}

byId("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  useKey(byId("key").value);
  byId("key-form").hidden = true;
  translate();
});

// A link that is pasted into the open page.
window.addEventListener("hashchange", () => location.reload());

start();
