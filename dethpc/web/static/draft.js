// The editor of a configuration: a mistake leads to its line, Ctrl+Enter creates, and nothing that was typed is lost by a wrong key.

const text = document.querySelector("[data-config]");
let sent = false;

document.addEventListener("click", (event) => {
  const line = event.target.closest?.("[data-line]")?.dataset.line;
  if (!line) return;
  event.preventDefault();
  const lines = text.value.split("\n");
  const from = lines.slice(0, line - 1).reduce((sum, each) => sum + each.length + 1, 0);
  text.focus();
  text.setSelectionRange(from, from + (lines[line - 1] ?? "").length);
  text.scrollTop = (line - 5) * parseFloat(getComputedStyle(text).lineHeight);
});

text.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) text.form.requestSubmit(text.form.querySelector("[value=create]"));
});

document.addEventListener("htmx:afterSwap", () => {
  text.setAttribute("aria-invalid", String(Boolean(document.querySelector("#look .problems"))));
});

text.form.addEventListener("submit", () => { sent = true; });
addEventListener("beforeunload", (event) => { if (!sent && text.value !== text.defaultValue) event.preventDefault(); });
