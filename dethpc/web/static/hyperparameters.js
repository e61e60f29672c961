// Parallel coordinates with brushing, and scatter plots, on canvas: ten thousand trials are drawn in one go.

import { axis, fitted, short, switches } from "./axes.js";
import { ramp, resolved } from "./colour.js";
import { Field } from "./crowds.js";

const place = document.getElementById("parallel");
const scatter = document.getElementById("scatter");
const scales = document.getElementById("scales");
const PAD = { top: 34, bottom: 22, side: 70 }, LINE = 14;
let trials = [], axes = [], chosen = new Map(), loaded = null;

let asked = 0;

async function load(told) {
  const turn = ++asked;
  const answer = await fetch(place.dataset.points, { headers: told ? { "HX-Request": "true" } : {} });
  if (!answer.ok) return;
  const text = await answer.text();
  if (turn !== asked || text === loaded) return;  // an answer that comes late is no news
  loaded = text;
  const found = JSON.parse(text), metric = place.dataset.metric;
  const some = [];
  for (let n = 0; n < found.trials.length; n++) {
    if (typeof found.values[n] !== "number") continue;
    const trial = {};
    leaves(found.hparams[n], "", trial);
    trial[metric] = found.values[n];
    some.push(trial);
  }
  await frameDrawn();
  if (text !== loaded) return;
  trials = some;
  scale();
}

// Values in objects in objects, by one name each, as the configuration has them.
function leaves(values, above, found) {
  for (const name in values) {
    const value = values[name];
    if (value && typeof value === "object" && !Array.isArray(value) && Object.keys(value).length) leaves(value, `${above}${name}.`, found);
    else found[above + name] = value;
  }
}

// What takes long goes on in the next frame, so that who works on the page does not wait.
const frameDrawn = () => new Promise(requestAnimationFrame);

const layout = () => axes.map((a) => [a.name, a.log]).join("\0");

function scale() {
  const metric = place.dataset.metric, before = layout();
  const drawn = new Map(Object.entries(JSON.parse(place.dataset.scales)));
  const names = new Set();
  for (const trial of trials) for (const name in trial) names.add(name);
  names.delete(metric);
  const differs = (name) => { const first = String(trials[0][name]); return trials.some((t) => String(t[name]) !== first); };
  axes = [...[...names].filter(differs), metric].map((name) => axis(name, trials.map((t) => t[name]), drawn.get(name)));
  if (before !== layout()) chosen.clear();  // what was chosen is kept while the axes are the same
  switches(scales, axes, () => { scale(); document.getElementById("main").dispatchEvent(new Event("changed")); });
  draw();
}

function canvas(parent, height, name) {
  const made = document.createElement("canvas");
  const width = parent.clientWidth || 600, scale = devicePixelRatio || 1;
  made.width = width * scale;
  made.height = height * scale;
  made.style.width = `${width}px`;
  made.style.height = `${height}px`;
  made.setAttribute("role", "img");
  made.setAttribute("aria-label", name);
  const pen = made.getContext("2d");
  pen.scale(scale, scale);
  pen.font = "12px system-ui";
  return { made, pen, width, height };
}

const good = (t) => { const a = axes.at(-1).at(t[place.dataset.metric]); return place.dataset.smaller === "false" ? a : 1 - a; };
let base = null, drawing = 0, ready = false;

async function draw() {
  const turn = ++drawing, others = () => turn !== drawing;
  ready = false;
  if (axes.length < 2) {
    place.replaceChildren(said("Nothing to compare yet: no hyperparameter differs between trials that have a metric."));
    scatter.replaceChildren();
    return;
  }
  const board = canvas(place, 340, "Parallel coordinates of hyperparameters and metric");
  base = board;
  PAD.top = 20 + LINE * inRows(base.pen);
  await prepare(others);
  if (others()) return;
  ready = true;
  place.replaceChildren(board.made);
  lines();
  brush(board);
  scatters();
}

const xOf = (i) => PAD.side + i * (base.width - 2 * PAD.side) / (axes.length - 1);
const yOf = (share) => base.height - PAD.bottom - share * (base.height - PAD.top - PAD.bottom);

const STRONG = 0.8;  // of a line or a dot by itself: what is behind is still seen, and the colour keeps its contrast
const BUCKETS = 24;  // colours of lines: those of one are drawn in few strokes
const TOGETHER = 12;  // lines of one stroke; where they cross they are not darker, so not too many
const AT_ONCE = 2000;  // trials that are drawn in one frame at first
const CROWD = 1000;  // trials that are drawn pixel by pixel
const bucket = (share) => Math.min(BUCKETS - 1, Math.floor(share * BUCKETS));

let colours = [], order = [], places = null, rows = null, ground = null, field = null, whole = null, shown = null;

// What does not change while one brushes: where each line goes (0 to 1 of each axis, NaN for none), who is better, and all lines in grey behind.
// ``others``: whether something else is drawn by now.
async function prepare(others) {
  colours = ramp(BUCKETS);
  order = trials.map((t) => ({ share: good(t), t }));
  order.sort((a, b) => a.share - b.share);
  places = new Float32Array(order.length * axes.length);
  order.forEach(({ t }, n) => axes.forEach((a, i) => { const v = t[a.name]; places[n * axes.length + i] = v === undefined ? NaN : a.at(v); }));
  rows = places.map(yOf);
  field = whole = null;
  const every = order.map((_, n) => n), alpha = 0.25;
  if (order.length > CROWD) {
    const { width, height } = base, scale = devicePixelRatio || 1;
    const grey = new Field(width, height, scale, [resolved("--line")]);
    [field, whole] = [0, 1].map(() => new Field(width, height, scale, colours));
    shown = new Uint8Array(order.length).fill(1);
    for (let n = 0; n < every.length && !others(); n += AT_ONCE) {
      add(whole, every.slice(n, n + AT_ONCE), 1);
      await frameDrawn();
    }
    if (others()) return;
    field.copy(whole);
    grey.weight.set(whole.weight);
    ground = grey.painted(alpha);
    return;
  }
  ground = document.createElement("canvas");
  ground.width = base.made.width;
  ground.height = base.made.height;
  const pen = ground.getContext("2d");
  pen.setTransform(base.pen.getTransform());
  pen.strokeStyle = resolved("--line");
  pen.globalAlpha = alpha;
  strokes(pen, every);
}

function add(to, numbers, sign) {
  const xs = axes.map((_, i) => xOf(i));
  for (const n of numbers) to.lines(xs, rows, n * axes.length, bucket(order[n].share), sign);
}

function strokes(pen, some) {
  for (let from = 0; from < some.length; from += TOGETHER) {
    pen.beginPath();
    for (const n of some.slice(from, from + TOGETHER)) {
      let begun = false;
      axes.forEach((_, i) => {
        const y = places[n * axes.length + i];
        if (Number.isNaN(y)) return;
        if (begun) pen.lineTo(xOf(i), yOf(y)); else pen.moveTo(xOf(i), yOf(y));
        begun = true;
      });
    }
    pen.stroke();
  }
}

// Which lines are within all that was chosen, 1 or 0 for each, in one pass.
function passing() {
  const some = new Uint8Array(order.length).fill(1);
  for (const [i, [low, high]] of chosen)
    for (let n = 0, at = i; n < some.length; n++, at += axes.length) if (!(places[at] >= low && places[at] <= high)) some[n] = 0;
  return some;
}

const numbers = (flags, wanted) => { const found = []; for (let n = 0; n < flags.length; n++) if (wanted(n)) found.push(n); return found; };

function lines() {
  if (!ready) return;
  const { pen, width, height } = base, some = passing(), within = numbers(some, (n) => some[n]);
  pen.clearRect(0, 0, width, height);
  if (chosen.size) pen.drawImage(ground, 0, 0, width, height);
  const alpha = Math.max(0.06, Math.min(STRONG, 120 / within.length));
  if (field) {
    changed(some, within);
    pen.drawImage(field.painted(alpha), 0, 0, width, height);
  } else {
    const buckets = Array.from({ length: BUCKETS }, () => []);
    for (const n of within) buckets[bucket(order[n].share)].push(n);
    pen.globalAlpha = alpha;
    buckets.forEach((each, i) => { pen.strokeStyle = colours[i]; strokes(pen, each); });
    pen.globalAlpha = 1;
  }
  frame(pen);
}

// The field holds these lines from now on: of what it holds, of nothing or of all, whichever is nearest to them.
function changed(some, within) {
  const differ = numbers(some, (n) => some[n] !== shown[n]), without = numbers(some, (n) => !some[n]);
  const least = Math.min(differ.length, within.length, without.length);
  if (least === differ.length) {
    add(field, differ.filter((n) => some[n]), 1);
    add(field, differ.filter((n) => !some[n]), -1);
  } else if (least === within.length) {
    field.clear();
    add(field, within, 1);
  } else {
    field.copy(whole);
    add(field, without, -1);
  }
  shown = some;
}

// Each axis and what stands at it. Names take turns in two rows where one has not room for all.
function frame(pen) {
  const ink = resolved("--faint"), room = axes.length > 1 ? xOf(1) - xOf(0) : base.width, rows = inRows(pen);
  axes.forEach((a, i) => {
    pen.strokeStyle = ink;
    pen.beginPath(); pen.moveTo(xOf(i), yOf(0)); pen.lineTo(xOf(i), yOf(1)); pen.stroke();
    pen.fillStyle = ink;
    pen.textAlign = "center";
    pen.fillText(named(pen, a, i, rows), xOf(i), 14 + LINE * (i % rows));
    pen.textAlign = "left";
    for (const [share, label] of a.labels) pen.fillText(fitted(pen, short(label), room - 10), xOf(i) + 5, yOf(share) + (share < 0.5 ? 14 : -6));
    const range = chosen.get(i);
    if (range) { pen.fillStyle = resolved("--accent"); pen.globalAlpha = 0.35; pen.fillRect(xOf(i) - 6, yOf(range[1]), 12, yOf(range[0]) - yOf(range[1])); pen.globalAlpha = 1; }
  });
}

// A name with what its axis is, cut where others of its row begin or the picture ends.
function named(pen, a, i, rows) {
  const aside = Math.min(rows * (xOf(1) - xOf(0)) / 2, xOf(i), base.width - xOf(i));
  return fitted(pen, a.name, 2 * aside - 8, a.log ? " (log)" : "");
}

// In how many rows the names stand.
const inRows = (pen) => axes.length > 2 && axes.some((a, i) => named(pen, a, i, 1) !== a.name + (a.log ? " (log)" : "")) ? 2 : 1;

function brush({ made }) {
  let from = null, due = false;
  const where = (event) => {
    const box = made.getBoundingClientRect();
    const x = event.clientX - box.left, y = event.clientY - box.top;
    const i = axes.map((_, i) => Math.abs(xOf(i) - x)).reduce((best, d, i, all) => d < all[best] ? i : best, 0);
    return Math.abs(xOf(i) - x) < 24 ? [i, Math.min(1, Math.max(0, (base.height - PAD.bottom - y) / (base.height - PAD.top - PAD.bottom)))] : null;
  };
  made.addEventListener("pointerdown", (event) => { from = where(event); if (from) made.setPointerCapture(event.pointerId); });
  made.addEventListener("pointermove", (event) => {
    if (!from) { made.title = axes[where(event)?.[0]]?.name ?? ""; return; }
    const share = where({ clientX: made.getBoundingClientRect().left + xOf(from[0]), clientY: event.clientY })[1];
    chosen.set(from[0], [Math.min(from[1], share), Math.max(from[1], share)]);
    if (!due) { due = true; requestAnimationFrame(() => { due = false; lines(); }); }
  });
  made.addEventListener("pointerup", () => {
    if (from) { const range = chosen.get(from[0]); if (!range || range[1] - range[0] < 0.01) chosen.delete(from[0]); lines(); scatters(); }
    from = null;
  });
}

let dotted = 0;

// One scatter plot in a frame, in the place of the one before: all at once would keep who works on the page waiting.
function scatters() {
  const turn = ++dotted, some = passing(), last = axes.length - 1;
  const next = (i) => {
    if (turn !== dotted || !ready) return;
    if (i < last) { dots(i, some); requestAnimationFrame(() => next(i + 1)); return; }
    while (scatter.children.length > last) scatter.lastChild.remove();
  };
  requestAnimationFrame(() => next(0));
}

function dots(i, some) {
  const metric = axes.at(-1), a = axes[i];
  const box = document.createElement("div");
  const head = document.createElement("h3");
  head.textContent = a.name;
  box.append(head);
  if (scatter.children[i]) scatter.children[i].replaceWith(box); else scatter.append(box);
  const { made, pen, width, height } = canvas(box, 200, `${told(metric)} over ${told(a)}`);
  box.append(made);
  const ink = resolved("--faint");
  const left = 10 + Math.max(...[metric.low, metric.high].map((value) => pen.measureText(short(value)).width));
  pen.strokeStyle = resolved("--line");
  pen.strokeRect(left, 8, width - left - 10, height - 30);
  const crowd = order.length > CROWD && new Field(width, height, devicePixelRatio || 1, colours);
  for (let n = 0; n < order.length; n++) {
    const across = places[n * axes.length + i], up = places[(n + 1) * axes.length - 1];
    if (!some[n] || Number.isNaN(across)) continue;
    const x = left + 6 + across * (width - left - 22), y = height - 22 - 6 - up * (height - 42);
    if (crowd) { crowd.dot(x, y, 2, bucket(order[n].share)); continue; }
    pen.globalAlpha = STRONG;
    pen.fillStyle = colours[bucket(order[n].share)];
    pen.beginPath();
    pen.arc(x, y, 3, 0, 7);
    pen.fill();
  }
  pen.globalAlpha = 1;
  if (crowd) pen.drawImage(crowd.painted(1.2), 0, 0, width, height);
  pen.fillStyle = ink;
  pen.textAlign = "left"; pen.fillText(fitted(pen, short(a.labels[0][1]), width / 3), left, height - 6);
  pen.textAlign = "right"; pen.fillText(fitted(pen, short(a.labels.at(-1)[1]), width / 3), width - 10, height - 6);
  pen.fillText(short(metric.high), left - 4, 16); pen.fillText(short(metric.low), left - 4, height - 24);
  if (metric.log) pen.fillText("log", left - 4, height / 2);
  pen.textAlign = "center";
  if (a.log) pen.fillText("log", (left + width) / 2, height - 6);
}

const told = (a) => a.name + (a.log ? " (logarithmic)" : "");

function said(text) {
  const p = document.createElement("p");
  p.className = "empty";
  p.textContent = text;
  return p;
}

if (place) {
  load();
  document.addEventListener("dethpc:changed", load);
  document.addEventListener("dethpc:theme", () => axes.length && draw());
  addEventListener("resize", () => axes.length && draw());
}
