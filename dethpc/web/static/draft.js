// The editor of a configuration: a mistake leads to its line, Ctrl+Enter creates, and nothing that was typed is lost.

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

// What was sent stays with this place in the history: who comes back to it finds it, and a refusal is not asked for a second time.
const keep = () => history.replaceState({ draft: text.value }, "", location.href);
text.form.addEventListener("submit", () => { sent = true; keep(); });
const draft = history.state?.draft ?? text.value;
if (draft !== text.value) {
  text.value = draft;
  addEventListener("load", () => text.dispatchEvent(new Event("input", { bubbles: true })));  // htmx listens by then
}
keep();
addEventListener("beforeunload", (event) => { if (!sent && text.value !== text.defaultValue) event.preventDefault(); });
