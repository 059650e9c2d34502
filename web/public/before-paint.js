// The stored theme and language, set before the first paint, so that nothing flashes.
(function () {
  var theme = null, language = null, density = null;
  try {
    theme = localStorage.getItem("windlass-theme");
    language = localStorage.getItem("windlass-language");
    density = localStorage.getItem("windlass-density");
  } catch (e) { /* storage is closed to us: the system's choice holds */ }
  if (theme !== "light" && theme !== "dark") {
    theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  }
  document.documentElement.setAttribute("data-mantine-color-scheme", theme);
  if (language !== "en" && language !== "zh") {
    language = /^zh\b/i.test(navigator.language) ? "zh" : "en";
  }
  document.documentElement.lang = language;
  if (density === "compact") document.documentElement.setAttribute("data-density", density);
})();
