// A log that goes on while one reads: new lines come at the end, and who has scrolled up keeps the place.

import { whoAnswers } from "./session.js";

const log = document.getElementById("log");
const state = document.getElementById("log-state");
const fresh = document.getElementById("log-new");
const earlier = document.getElementById("log-earlier");

const AT_END = 5_000;  // lines that are kept while one looks at the end
const MOST = 20_000;   // lines that are kept at all
const OFFSET = 32n;     // bits of an id that say where in its file a line lies
const known = new Set([...log.querySelectorAll(".line")].map((line) => line.dataset.id));
// The last line of each file: an id is where a line lies, the file above and the offset below.
const lasts = new Map();
for (const line of log.querySelectorAll(".line")) isNew(line.dataset.id);
let stream = null, since = log.dataset.follow, unseen = 0, over = !since;

const atEnd = () => log.scrollHeight - log.scrollTop - log.clientHeight < 40;
let left = false;  // one has scrolled up to read
log.addEventListener("scroll", () => {
  left = !atEnd();
  if (!left && unseen) { unseen = 0; told(); trim(); }
  if (log.scrollTop < 200 && earlier) before();
}, { passive: true });

function toEnd() {
  if ("tail" in log.dataset) log.scrollTop = log.scrollHeight;
}

function told() {
  fresh.hidden = !unseen;
  fresh.textContent = unseen === 1 ? "1 new line ↓" : `${unseen.toLocaleString("en")} new lines ↓`;
}
fresh.addEventListener("click", () => {
  if (stream || over) { left = false; unseen = 0; told(); toEnd(); trim(); }
  else document.querySelector("[data-to-end]")?.click() ?? location.reload();
  log.focus({ preventScroll: true });
});

// --- what comes

function isNew(text) {
  const id = BigInt(text), file = id >> OFFSET;
  if (id <= (lasts.get(file) ?? -1n)) return false;
  lasts.set(file, id);
  return true;
}

function element(line) {
  const row = document.createElement("div");
  row.className = `line ${line.level.toLowerCase()}`;
  row.dataset.id = line.id;
  row.dataset.at = line.at;
  const time = document.createElement("time");
  time.dateTime = line.at;
  time.title = line.node ? `${line.at} ${line.node}` : line.at;
  time.textContent = line.clock;
  row.append(time);
  if (line.rank !== null) {
    const rank = document.createElement("span");
    rank.className = "rank";
    rank.textContent = `r${line.rank}`;
    row.append(rank);
  }
  const text = document.createElement("span");
  text.className = "text";
  text.textContent = line.text;
  row.append(text);
  return row;
}

function take(lines) {
  // A page says again what came lately, for lines of several nodes come late; of a file without a line here, what is older is above.
  const first = log.querySelector(".line")?.dataset.at ?? "";
  let come = lines.filter((line) => line.at >= first && isNew(line.id));
  if (!come.length) return;
  if (!left && come.length > AT_END) { log.replaceChildren(); known.clear(); come = come.slice(-AT_END); }
  log.querySelector(".empty")?.remove();
  const piece = document.createDocumentFragment();
  for (const line of come) { known.add(line.id); piece.append(element(line)); }
  log.append(piece);
  if (left) { unseen += come.length; told(); } else { trim(); toEnd(); }
  if (log.childElementCount > MOST && left) {
    hush();
    state.textContent = "Many lines have come since you scrolled up: the log is not followed on until you go to its end.";
  }
}

function trim() {
  while (log.childElementCount > AT_END) {
    known.delete(log.firstElementChild.dataset.id);
    log.firstElementChild.remove();
  }
}

function follow() {
  if (stream || over || away || document.hidden || log.childElementCount > MOST) return;
  const last = log.querySelector(".line:last-of-type")?.dataset.at;
  const url = new URL(since, location.href);
  if (last) url.searchParams.set("since", last);
  stream = new EventSource(url);
  stream.addEventListener("open", () => { state.textContent = "New lines come by themselves."; });
  stream.addEventListener("lines", (event) => take(JSON.parse(event.data)));
  stream.addEventListener("over", () => { over = true; hush(); state.textContent = "It has ended: these are its last lines."; });
  stream.addEventListener("refused", (event) => { over = true; hush(); state.textContent = `The log cannot be followed (${event.data}).`; });
  stream.addEventListener("error", lost);
}

let away = false;
async function lost() {
  hush();
  if (away) return;
  away = true;
  state.textContent = "The master does not answer. The log goes on when it does.";
  while (await whoAnswers() !== "here") await new Promise((resolve) => setTimeout(resolve, 3000));  // app.js does the rest
  away = false;
  setTimeout(follow, 500);
}

function hush() {
  stream?.close();
  stream = null;
}

// --- what came before

let asking = false;
async function before() {
  if (asking || !earlier?.isConnected || log.childElementCount > MOST) return;
  asking = true;
  try {
    const answer = await fetch(earlier.href);
    if (!answer.ok) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const lines = [...page.querySelectorAll("#log .line")].filter((line) => !known.has(line.dataset.id));
    const next = page.getElementById("log-earlier");
    const height = log.scrollHeight, top = log.scrollTop;
    for (const line of lines) known.add(line.dataset.id);
    left = true;
    log.prepend(...lines.map((line) => document.adoptNode(line)));
    log.scrollTop = top + log.scrollHeight - height;
    if (next && lines.length) earlier.setAttribute("href", next.getAttribute("href"));
    else earlier.remove();
  } finally {
    asking = false;
  }
}
earlier?.addEventListener("click", (event) => { event.preventDefault(); before(); });

log.querySelector(".first")?.scrollIntoView({ block: "center" });
toEnd();
follow();
document.addEventListener("visibilitychange", () => { if (document.hidden) hush(); else follow(); });
addEventListener("pagehide", hush);
addEventListener("pageshow", follow);
