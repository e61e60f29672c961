// Axes of hyperparameters: where a value lies on one, and which are logarithmic. The address keeps what a person chose: log=lr&linear=decay.

const WIDE = 30;  // the largest over the smallest value, where nobody says more, as for the heat map

// An axis of ``values``: ``at`` gives the place of one, 0 to 1. ``log``: whether it is logarithmic; ``may``: whether it could be.
// ``drawn``: whether the configuration draws it by its logarithm, undefined where it does not say.
export function axis(name, values, drawn) {
  values = values.filter((value) => value !== undefined);
  if (!values.every((value) => typeof value === "number")) return kinds(name, values);
  let low = Infinity, high = -Infinity;
  for (const value of values) { if (value < low) low = value; if (value > high) high = value; }
  const may = low > 0 && low < high, usual = may && (drawn ?? high / low >= WIDE), log = may && (chosen(name) ?? usual);
  const f = log ? Math.log : (value) => value, span = f(high) - f(low) || 1;
  return { name, at: (value) => (f(value) - f(low)) / span, low, high, log, may, usual, labels: [[0, low], [1, high]] };
}

function kinds(name, values) {
  const found = [...new Set(values.map(String))].sort(), place = (value) => found.indexOf(String(value)) / Math.max(1, found.length - 1);
  return { name, at: place, labels: found.slice(0, 12).map((kind) => [place(kind), kind]) };
}

// What the address says of an axis; undefined: nothing.
function chosen(name) {
  const { searchParams } = new URL(location.href);
  return searchParams.getAll("log").includes(name) || (searchParams.getAll("linear").includes(name) ? false : undefined);
}

// The address says from now on that this axis is logarithmic or not, where that is not what it would be anyway.
function choose({ name, usual }, log) {
  const here = new URL(location.href);
  for (const kind of ["log", "linear"]) {
    const others = here.searchParams.getAll(kind).filter((each) => each !== name);
    here.searchParams.delete(kind);
    for (const each of others) here.searchParams.append(kind, each);
  }
  if (log !== usual) here.searchParams.append(log ? "log" : "linear", name);
  history.replaceState(history.state, "", here);
}

// A switch in ``place`` for each axis that may be logarithmic. ``then``: what follows a change.
export function switches(place, axes, then) {
  const some = axes.filter((each) => each.may);
  place.hidden = !some.length;
  const names = some.map((each) => each.name).join("\0");
  if (place.dataset.names === names) {  // who holds one by keyboard goes on to
    place.querySelectorAll("input").forEach((box, i) => { box.checked = some[i].log; box.axis = some[i]; });
    return;
  }
  place.dataset.names = names;
  place.replaceChildren("logarithmic:", ...some.map((each) => {
    const label = document.createElement("label"), box = document.createElement("input");
    box.type = "checkbox";
    box.checked = each.log;
    box.axis = each;
    box.addEventListener("change", () => { choose(box.axis, box.checked); then(); });
    label.append(box, ` ${each.name}`);
    return label;
  }));
}

export const short = (v) => typeof v === "number" ? (Number.isInteger(v) ? String(v) : Math.abs(v) >= 1e-4 && Math.abs(v) < 1e6 ? Number(v.toPrecision(3)).toString() : v.toExponential(1)) : String(v);

// As much of a text as has room, with what follows it whole.
export function fitted(pen, text, room, behind = "") {
  const whole = (some) => pen.measureText(some + behind).width <= room;
  if (whole(text)) return text + behind;
  let low = 0, high = text.length;
  while (low < high) { const middle = (low + high + 1) >> 1; if (whole(`${text.slice(0, middle)}…`)) low = middle; else high = middle - 1; }
  return `${text.slice(0, low)}…${behind}`;
}
