// Light or dark before anything is drawn: the system's choice unless another was made here.
// It is no module, so that it runs first.
(() => {
  const choices = ["system", "light", "dark"];
  const root = document.documentElement;

  function stored() {
    try {
      return localStorage.getItem("dragoman.theme");
    } catch {
      return null; // storage may be forbidden
    }
  }

  function apply(choice) {
    root.dataset.theme = choices.includes(choice) ? choice : "system";
  }

  function next() {
    const choice = choices[(choices.indexOf(root.dataset.theme) + 1) % choices.length];
    apply(choice);
    try {
      localStorage.setItem("dragoman.theme", choice);
    } catch {
      // then it holds for this page alone
    }
    show();
  }

  function show() {
    document.getElementById("theme").textContent = `Theme: ${root.dataset.theme}`;
    document.dispatchEvent(new Event("themechange"));
  }

  apply(stored());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () =>
    document.dispatchEvent(new Event("themechange")),
  );
  document.addEventListener("DOMContentLoaded", () => {
    document.getElementById("theme").addEventListener("click", next);
    show();
  });
})();
