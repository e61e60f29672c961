// Curves of metrics, by uPlot. Data comes as columns; what was drawn stays while the page around it changes.

import { resolved } from "./colour.js";
import { Curves } from "./crowds.js";
import { list, pinned, toggle, wanted } from "./pins.js";

const place = document.getElementById("curves");
const controls = document.querySelector("[data-chart-controls]");
const many = Boolean(place?.dataset.curves);
let plots = [];
let drawn = null;

const COLOURS = 10;
const NEAR = 24;  // pixels from the pointer to a curve that it points at
const CROWD = 50;  // curves of one plot; uPlot takes seconds for more

let asked = 0;

async function load(told) {
  const turn = ++asked;
  // What others who were told are shown is good enough.
  const headers = { accept: "application/json", ...(told ? { "HX-Request": "true" } : {}) };
  const answer = await fetch(many ? `${place.dataset.curves}&pin=${wanted()}` : place.dataset.groups, { headers });
  if (!answer.ok) return;
  const text = await answer.text();
  if (turn !== asked || drawn?.text === text) return;  // an answer that comes late is no news
  drawn = { text, data: JSON.parse(text) };
  draw(new Map(plots.filter(zoomed).map((plot) => [plot.of, { min: plot.scales.x.min, max: plot.scales.x.max }])));
}

// One common x for all curves, as uPlot wants it: undefined where a curve has no point, null where its value is no number.
function joined(curves, x) {
  const found = new Set();
  for (const curve of curves) for (const value of curve[x]) if (value !== null) found.add(value);
  const xs = Array.from(found).sort((a, b) => a - b);
  const at = new Map(xs.map((value, index) => [value, index]));
  return [xs, ...curves.map((curve) => {
    const ys = new Array(xs.length).fill(undefined), own = curve[x];
    for (let i = 0; i < own.length; i++)
      if (own[i] !== null && curve.values[i] !== null) ys[at.get(own[i])] = typeof curve.values[i] === "number" ? curve.values[i] : null;
    return ys;
  })];
}

function smoothed(values, weight) {
  // An exponential moving average without the bias of its first values (Kingma & Ba 2015, section 3).
  let last = 0, count = 0;
  return values.map((value) => {
    if (value === null || value === undefined) return value;
    last = last * weight + (1 - weight) * value;
    count += 1;
    return last / (1 - weight ** count);
  });
}

const kept = new Map();  // which colour a curve has, while it is shown

// A colour for each curve by its number: the one that goes with the number, or of those that fewest have. Who comes earlier by number
// chooses first, so that the rank of a curve changes nothing, and who is shown already keeps what it has.
function coloured(numbers) {
  const shown = new Set(numbers);
  for (const number of kept.keys()) if (!shown.has(number)) kept.delete(number);
  const having = new Array(COLOURS).fill(0);
  for (const colour of kept.values()) having[colour] += 1;
  for (const number of numbers.filter((number) => !kept.has(number)).sort((a, b) => a - b)) {
    const least = Math.min(...having);
    let colour = number % COLOURS;
    while (having[colour] > least) colour = (colour + 1) % COLOURS;
    having[colour] += 1;
    kept.set(number, colour);
  }
  return numbers.map((number) => kept.get(number));
}

function said(text, how) {
  const p = document.createElement("p");
  p.className = how;
  p.textContent = text;
  return p;
}

function zoomed({ data: [xs], scales: { x } }) {
  return x.min > xs[0] || x.max < xs[xs.length - 1];
}

// ``ranges``: by a plot's title, the part of its x that is shown; all of it where none is said.
function draw(ranges = new Map()) {
  for (const plot of plots) plot.destroy();
  plots = [];
  place.replaceChildren();
  controls.hidden = false;
  if (many) one(place, drawn.data.trials.map((t) => ({ ...t, label: `trial ${t.id}` })), "");
  else for (const group of drawn.data.groups)
    for (const [name, values] of Object.entries(group.metrics))
      if (values.some((value) => value !== null)) one(place, [{ ...group, values, label: name }], `${group.group} ${name}`);
  if (!place.children.length) place.append(said("No number has been reported yet.", "empty"));
  for (const plot of plots) if (ranges.has(plot.of)) plot.setScale("x", ranges.get(plot.of));
}

function one(parent, curves, title) {
  const x = controls.querySelector("[data-x]").value;
  const log = controls.querySelector("[data-log]").checked;
  const logX = x !== "times" && controls.querySelector("[data-log-x]").checked;
  const weight = Number(controls.querySelector("[data-smooth]").value);
  const all = curves.filter((curve) => curve.values.some((value) => value !== null));
  if (!all.length) return;
  const box = document.createElement("div");
  if (title) { const head = document.createElement("h3"); head.textContent = title; box.append(head); }
  parent.append(box);
  curves = all.filter((curve) => curve.values.some((value, i) => value !== null && curve[x][i] !== null));
  if (curves.length < all.length) {
    const which = !curves.length ? "Nothing is drawn" : `${all.length - curves.length} of ${all.length} curves are left out`;
    box.append(said(`${which}: over ${x}, each report needs a metric “epochs” beside its others.`, curves.length ? "faint" : "empty"));
  }
  if (!curves.length) return;
  const tip = document.createElement("div");
  tip.className = "tip";
  const pins = document.createElement("div");
  pins.className = "pins";
  const data = joined(curves, x);
  if (logX) while (data[0][0] <= 0) for (const column of data) column.shift();
  if (weight) for (let i = 1; i < data.length; i++) data[i] = smoothed(data[i], weight);
  if (log) for (let i = 1; i < data.length; i++) data[i] = data[i].map((value) => value <= 0 ? null : value);
  const points = columns(data), layer = document.createElement("canvas");
  layer.className = "layer";
  let near = null;  // the point under the pointer
  const ink = resolved("--faint"), line = resolved("--line");
  const colours = [...Array(COLOURS).keys()].map((index) => resolved(`--c${index}`));
  const own = coloured(curves.map((curve, index) => curve.id ?? index));
  curves = curves.map((curve, index) => ({ ...curve, colour: curve.at === undefined ? own[index] : curve.at % COLOURS }));
  const above = () => !many ? [] : [
    ...curves.flatMap((curve, i) => pinned(curve.id) ? [{ ...points[i], colour: colours[curve.colour] }] : []),
    ...(near ? [{ ...points[near.curve], colour: resolved("--ink") }] : []),
  ];
  const axis = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 }, font: "12px system-ui" };
  const crowd = curves.length > CROWD ? new Curves(points, curves.map((curve) => colours[curve.colour])) : null;
  const plot = new uPlot(pictured({
    width: box.clientWidth || 600, height: many ? 320 : 220,
    scales: { x: { time: x === "times", distr: logX ? 3 : 1 }, y: { distr: log ? 3 : 1 } },
    axes: [x === "times" ? axis : { ...axis, values: ticks }, { ...axis, size: 64, values: ticks }],
    legend: { show: false },
    // uPlot would draw all curves again for the one under the pointer, and move a mark for each: a thousand take too long.
    cursor: { points: { size: 6, show: curves.length === 1 } },
    series: [{}, ...curves.map((curve) => ({ label: curve.label, stroke: colours[curve.colour], width: 1.5, spanGaps: true, points: { show: data[0].length < 3 } }))],
    hooks: {
      draw: [(u) => mark(u, layer, above())],
      setCursor: [(u) => {
        near = nearest(u, points);
        mark(u, layer, above());
        tip.textContent = near ? `${curves[near.curve].label} · ${x} ${number(near.x, x)} · ${number(near.y)} ${curves[near.curve].hparams ?? ""}` : "";
      }],
    },
  }, points, crowd), data, box);
  plot.over.append(layer);
  box.append(tip, pins);
  if (many) {
    plot.pins = () => list(pins, curves);
    plot.pins();
    plot.over.addEventListener("click", () => { if (near) toggle(curves[near.curve].id); });
  }
  plot.of = title;
  plots.push(plot);
}

// How a plot draws its curves: a crowd by itself, and what uPlot leaves out, which is a value that is no number and one without neighbours.
function pictured(options, points, crowd) {
  for (const series of options.series) Object.assign(series, { spanGaps: false }, crowd && { paths: () => null });
  const found = points.map(alone);
  const draw = (u) => { crowd?.draw(u); found.forEach((some, n) => some.length && marks(u, some, options.series[n + 1].stroke)); };
  options.hooks.draw = [draw, ...(options.hooks.draw ?? [])];
  points.crowd = crowd;
  return options;
}

// The points of a curve that no line leads to: {x, y} of a number, and {x, y: the last number, odd} of a value that is none.
function alone({ x, y }) {
  const some = [];
  let last, before = NaN;
  for (let i = 0; i < y.length; before = y[i++]) {
    if (Number.isNaN(y[i])) some.push({ x: x[i], y: last, odd: true });
    else if (Number.isNaN(before) && (i + 1 === y.length || Number.isNaN(y[i + 1]))) some.push({ x: x[i], y: y[i] });
    if (!Number.isNaN(y[i])) last = y[i];
  }
  return some;
}

function marks(u, some, colour) {
  const pen = u.ctx, { left, top, width, height } = u.bbox, size = 3.5 * devicePixelRatio;
  pen.save();
  pen.strokeStyle = pen.fillStyle = colour;
  pen.lineWidth = 1.5 * devicePixelRatio;
  pen.beginPath();
  for (const { x, y, odd } of some) {
    const at = u.valToPos(x, "x", true), floor = top + height - 2 * size, found = y === undefined ? floor : u.valToPos(y, "y", true);
    const row = Number.isFinite(found) ? Math.min(Math.max(found, top + size), floor) : floor;
    if (at < left || at > left + width) continue;
    if (odd) { pen.moveTo(at - size, row - size); pen.lineTo(at + size, row + size); pen.moveTo(at - size, row + size); pen.lineTo(at + size, row - size); }
    else pen.fillRect(at - size / 2, row - size / 2, size, size);
  }
  pen.stroke();
  pen.restore();
}

// Each curve by itself: its own points alone, in order; NaN is a gap.
function columns([xs, ...curves]) {
  return curves.map((ys) => {
    const own = { x: [], y: [] };
    for (let i = 0; i < ys.length; i++) if (ys[i] !== undefined) { own.x.push(xs[i]); own.y.push(ys[i] ?? NaN); }
    return own;
  });
}

// The point of the curve that is nearest to the pointer, at the pointer's x; null when none is near.
function nearest(u, points) {
  const { left, top } = u.cursor;
  if (left === undefined || left < 0) return null;
  const wanted = u.posToVal(left, "x"), seen = points.crowd?.nearest(left, top, NEAR);
  let best = null, least = points.length > 1 && seen === undefined ? NEAR : Infinity;
  points.forEach(({ x, y }, curve) => {
    if (!x.length || (seen !== undefined && seen !== curve)) return;
    let low = 0, high = x.length - 1;
    while (low < high) { const middle = (low + high) >> 1; if (x[middle] < wanted) low = middle + 1; else high = middle; }
    if (low && wanted - x[low - 1] < x[low] - wanted) low -= 1;
    const distance = Math.abs(u.valToPos(y[low], "y") - top);
    if (distance < least) { least = distance; best = { curve, x: x[low], y: y[low] }; }
  });
  return best;
}

// Curves that are pinned and the one under the pointer, on a layer of their own above the others.
function mark(u, layer, curves) {
  const scale = devicePixelRatio || 1, width = u.over.clientWidth, height = u.over.clientHeight;
  if (layer.width !== Math.round(width * scale) || layer.height !== Math.round(height * scale)) {
    layer.width = Math.round(width * scale);
    layer.height = Math.round(height * scale);
  }
  const pen = layer.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  u.root.classList.toggle("pointed", curves.length > 0);
  for (const points of curves) {
    pen.beginPath();
    points.x.forEach((x, i) => {
      if (Number.isNaN(points.y[i])) return;
      const to = i && Number.isNaN(points.y[i - 1]) ? "moveTo" : "lineTo";  // a gap stays one
      pen[to](u.valToPos(x, "x"), u.valToPos(points.y[i], "y"));
    });
    pen.lineWidth = 2.5;
    pen.strokeStyle = points.colour;
    pen.stroke();
  }
}

function number(value, x) {
  if (value === null || value === undefined) return "–";
  if (x === "times") return new Date(value * 1000).toLocaleString();
  return Number.isInteger(value) ? value.toLocaleString("en") : Number(value.toPrecision(4)).toString();
}

// What stands at an axis, where no more than seven characters have room.
function ticks(_, values) {
  return values.map((value) => {
    if (value === null || value === undefined) return "";
    const size = Math.abs(value);
    if (size && (size >= 1e6 || size < 1e-4)) return Number(value.toPrecision(4)).toExponential().replace("e+", "e");
    return Number(value.toPrecision(6)).toLocaleString("en", { maximumFractionDigits: 6 });
  });
}

// A plot as it is seen: what lies on its layer, too, and the others as faint as they are beside that.
function picture({ ctx: { canvas }, over, bbox }) {
  const made = document.createElement("canvas");
  made.width = canvas.width;
  made.height = canvas.height;
  const pen = made.getContext("2d");
  pen.globalAlpha = Number(getComputedStyle(canvas).opacity);
  pen.drawImage(canvas, 0, 0);
  pen.globalAlpha = 1;
  pen.drawImage(over.querySelector(".layer"), bbox.left, bbox.top);
  return made.toDataURL("image/png");
}

function save(name, href) {
  const link = document.createElement("a");
  link.download = name;
  link.href = href;
  link.click();
}

if (place) {
  load();
  document.addEventListener("dethpc:changed", load);
  document.addEventListener("dethpc:pins", () => { for (const plot of plots) { plot.pins?.(); plot.redraw(false); } });
  document.addEventListener("dethpc:theme", () => drawn && draw());
  controls.addEventListener("input", () => drawn && draw());
  controls.querySelector("[data-png]")?.addEventListener("click", () => plots[0] && save("curves.png", picture(plots[0])));
  controls.querySelector("[data-csv]")?.addEventListener("click", () => {
    const rows = [["trial", "steps", "time", "value"]];
    for (const trial of drawn.data.trials) trial.values.forEach((value, i) => rows.push([trial.id, trial.steps[i], trial.times[i], value]));
    save("curves.csv", `data:text/csv,${encodeURIComponent(rows.map((row) => row.join(",")).join("\n"))}`);
  });
  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width && drawn) { width = innerWidth; draw(); } });
}
