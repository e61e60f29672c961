// Pinned curves stay highlighted. The address names them, so that a link shows them.

const pins = new Set((new URL(location.href).searchParams.get("pin") ?? "").split(",").filter(Boolean).map(Number));

export const pinned = (id) => pins.has(id);
export const wanted = () => [...pins].join(",");

export function toggle(id) {
  if (!pins.delete(id)) pins.add(id);
  const here = new URL(location.href);
  if (pins.size) here.searchParams.set("pin", wanted());
  else here.searchParams.delete("pin");
  history.replaceState(null, "", here.href.replaceAll("%2C", ","));
  for (const field of document.querySelectorAll("input[name=pin]")) field.value = wanted();
  told();
  document.dispatchEvent(new Event("dethpc:pins"));
}

// The pinned ones among ``curves`` below their picture, each with the way to its trial and a button that lets it go.
export function list(place, curves) {
  place.replaceChildren(...curves.filter((curve) => pins.has(curve.id)).map((curve) => {
    const one = document.createElement("span"), link = document.createElement("a"), free = document.createElement("button");
    const dot = document.createElement("span");
    one.className = "pin";
    dot.className = `dot c${curve.colour}`;
    link.href = `${document.body.dataset.root}trials/${curve.id}`;
    link.textContent = curve.label;
    link.title = curve.hparams ?? "";
    free.type = "button";
    free.className = "quiet";
    free.textContent = "✕";
    free.setAttribute("aria-label", `Unpin ${curve.label}`);
    free.addEventListener("click", () => toggle(curve.id));
    one.append(dot, " ", link, free);
    return one;
  }));
}

// The links of a table that pin say what they would do now.
function told() {
  for (const link of document.querySelectorAll("[data-pin]")) link.textContent = pins.has(Number(link.dataset.pin)) ? "unpin" : "pin";
}

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("[data-pin]");
  if (!link || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  toggle(Number(link.dataset.pin));
});
