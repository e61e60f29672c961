// A job is dragged by its handle to another place of the queue. Manage Job does the same by keyboard.

let row = null;  // the one that is dragged

document.addEventListener("dragstart", (event) => {
  row = event.target.closest?.(".handle")?.closest("tr") ?? null;
  if (!row) return;
  event.dataTransfer.setData("text/plain", row.dataset.job);
  event.dataTransfer.effectAllowed = "move";
  event.dataTransfer.setDragImage(row, 0, 0);
});

// Where it would go: ahead of the row under the pointer, or behind it.
function aim(event) {
  const over = row && event.target.closest?.("tr[data-job]");
  if (!over || over === row) return null;
  const { top, height } = over.getBoundingClientRect();
  return { over, action: event.clientY < top + height / 2 ? "ahead" : "behind" };
}

function unmark() {
  for (const each of document.querySelectorAll("tr.ahead, tr.behind")) each.classList.remove("ahead", "behind");
}

document.addEventListener("dragover", (event) => {
  const at = aim(event);
  unmark();
  if (!at) return;
  event.preventDefault();
  at.over.classList.add(at.action);
});

document.addEventListener("drop", (event) => {
  const at = aim(event);
  if (!at) return;
  event.preventDefault();
  const form = document.getElementById("dragged"), { job, other, action } = form.elements;
  job.value = row.dataset.job;
  other.value = at.over.dataset.job;
  action.value = at.action;
  setTimeout(() => form.requestSubmit(action));  // when the browser has ended its drag
});

document.addEventListener("dragend", () => { row = null; unmark(); });
