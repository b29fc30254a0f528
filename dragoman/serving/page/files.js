// Files: chosen or dropped, translated as a whole, and fetched.

import { fetchFile, upload } from "./api.js";
import { byId, make } from "./dom.js";
import { view } from "./link.js";
import { explain, say } from "./notice.js";

export function startFiles(settings) {
  if (!settings.filesTranslation) {
    byId("choose-file").hidden = true;
    return;
  }
  const formats = settings.supportedFilesFormat;
  byId("file").accept = formats.join(",");
  byId("choose-file").title = `Translate a file: ${formats.join(", ")}`;
  byId("choose-file").addEventListener("click", () => byId("file").click());
  byId("file").addEventListener("change", () => {
    const [file] = byId("file").files;
    if (file) translateFile(file);
    byId("file").value = "";
  });
  catchDrops();
}

function catchDrops() {
  const pane = byId("source-pane");
  const hasFile = (event) => [...event.dataTransfer.types].includes("Files");
  document.addEventListener("dragover", (event) => {
    if (!hasFile(event)) return;
    event.preventDefault();
    pane.classList.add("awaits");
  });
  document.addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) pane.classList.remove("awaits");
  });
  document.addEventListener("drop", (event) => {
    pane.classList.remove("awaits");
    if (!hasFile(event)) return;
    event.preventDefault();
    translateFile(event.dataTransfer.files[0]);
  });
}

async function translateFile(file) {
  say(`Translating ${file.name} …`);
  try {
    const { source, target } = view;
    const { translatedFileUrl } = await upload("translate_file", { file, source, target });
    // Only its name is taken: behind a proxy the server may not know by which address it is reached.
    const name = translatedFileUrl.split("/").pop();
    const suffix = file.name.slice(file.name.lastIndexOf("."));
    const saved = `${file.name.slice(0, -suffix.length)}.${target}${suffix}`;
    const content = await fetchFile(`download_file/${name}`); // which would be called otherwise if it were linked to
    const link = make("a", { href: URL.createObjectURL(content), download: saved }, `Save ${saved}`);
    say(`${file.name} is translated. `, link);
    link.focus();
  } catch (error) {
    explain(error, () => translateFile(file));
  }
}
