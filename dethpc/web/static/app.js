// What every page does: it goes on to change, keeps its times true, asks before something ends, and listens to the keyboard.

import { goOn, whoAnswers } from "./session.js";

const root = document.body.dataset.root;

// What was said, and how one came here, is said once: neither a reload nor a bookmark repeats it.
const here = new URL(location.href);
if (["said", "followed"].some((name) => here.searchParams.has(name))) {
  for (const name of ["said", "followed"]) here.searchParams.delete(name);
  history.replaceState(null, "", here);
}

// --- live: the master says that something was committed, and the page is made again around what stays the same

const main = document.getElementById("main");
const link = document.getElementById("link"), behind = document.getElementById("behind");
const MANAGED = "details.manage[open]";  // what a person works in stays as it is, and the page around it goes on
let events = null, waits = false;

// Nobody looks: no connection. A browser opens six to one host, and the seventh tab would wait for ever.
function listen() {
  if (events || document.hidden || away) return;
  events = new EventSource(`${root}events?of=${encodeURIComponent(main.dataset.live)}&since=${main.dataset.since}`);
  events.addEventListener("open", () => tell(""));
  events.addEventListener("changed", renew);
  events.addEventListener("error", lost);
}

function hush() {
  events?.close();
  events = null;
}

// The browser would connect again by itself, to whoever has the port by now: first the server shows that it is the master.
let away = false;
async function lost() {
  hush();
  if (away) return;
  away = true;
  for (;;) {
    const who = await whoAnswers();
    if (who === "here") break;
    if (who === "ended") { loggedOut(); return; }
    if (who === "next") { movedOn(); return; }
    tell("The master does not answer. The page goes on when it does.");
    await new Promise((resolve) => setTimeout(resolve, 3000));
  }
  await new Promise((resolve) => setTimeout(resolve, 500));
  away = false;
  tell("");
  listen();
}

function movedOn() {
  if (!amid()) { goOn(); return; }
  tell("The master was started again. ");
  const again = document.createElement("button");
  again.textContent = "Go on with it";
  again.addEventListener("click", async () => { if (await whoAnswers() === "next") goOn(); });
  link.append(again);
}

function loggedOut() {
  hush();
  tell("Your login has ended. ");
  const again = document.createElement("a");
  again.href = location.href;
  again.textContent = "Log in again";
  link.append(again);
}

function tell(text) {
  link.textContent = text;
  link.hidden = !text;
}

function renew() {
  wait(amid());
  if (waits) return;
  main.dispatchEvent(new Event("changed"));
  document.dispatchEvent(new Event("dethpc:changed"));
}

// Told above the page and not in it: whoever is choosing rows must not find others below the pointer.
function wait(on) {
  waits = on;
  behind.hidden = !on;
}

// Nobody looks, or somebody is in the middle of something: the page is made again later.
function amid() {
  return Boolean(document.hidden || document.querySelector("dialog[open]") || busy());
}

if (main.dataset.live && window.EventSource) {
  listen();
  document.addEventListener("visibilitychange", () => { if (document.hidden) hush(); else { listen(); if (waits) renew(); } });
  for (const kind of ["focusout", "change", "input", "toggle"])
    document.addEventListener(kind, () => setTimeout(() => { if (waits) renew(); }, 200), true);
  main.addEventListener("htmx:beforeSwap", (event) => {
    // Somebody began to type while the new page was on its way.
    if (event.detail.target === main && event.detail.shouldSwap && amid()) { event.detail.shouldSwap = false; wait(true); }
  });
  document.addEventListener("htmx:responseError", (event) => { if (event.detail.xhr.status === 401) lost(); });
  addEventListener("pagehide", hush);
  addEventListener("pageshow", listen);
  addEventListener("DOMContentLoaded", () => {
    // What a script of ours keeps, it keeps as it is.
    Idiomorph.defaults.callbacks.beforeNodeMorphed = (node) => !(node instanceof HTMLElement && ("keep" in node.dataset || node.matches(MANAGED)));
    // What a person opened or marked stays so.
    Idiomorph.defaults.callbacks.beforeAttributeUpdated = (name, node) =>
      !(name === "open" && node.tagName === "DETAILS") && !(name === "class" && node.matches("tr[data-row]"));
  });
}

function busy() {
  const at = document.activeElement, outside = (field) => !field.closest(MANAGED);
  const picks = at && main.contains(at) && at.tagName === "SELECT" && at.form && outside(at);  // its list may be open, and would close
  return picks || [...main.querySelectorAll("form :is(input, textarea, select)")].some((field) => outside(field) && filled(field));
}

// Whether a person put something else into a field than the page had there, which a new page would undo.
function filled(field) {
  if (["checkbox", "radio"].includes(field.type)) return field.checked !== field.defaultChecked;
  if (field.tagName !== "SELECT") return field.value !== field.defaultValue;
  return field.selectedIndex !== Math.max(0, [...field.options].findIndex((option) => option.defaultSelected));
}

// --- relative times

const units = [["year", 31536000], ["month", 2592000], ["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];
const relative = new Intl.RelativeTimeFormat("en", { numeric: "auto", style: "short" });

function ago(seconds) {
  const [unit, size] = units.find(([, size]) => Math.abs(seconds) >= size) ?? units.at(-1);
  return relative.format(Math.trunc(seconds / size), unit);
}

function keepTimes() {
  for (const time of document.querySelectorAll("time[datetime]:not(.line time)")) {
    const text = ago((Date.parse(time.dateTime) - Date.now()) / 1000);
    if (time.textContent !== text) time.textContent = text;
  }
}
keepTimes();
setInterval(keepTimes, 10_000);
document.addEventListener("htmx:afterSwap", keepTimes);

// --- what ends something is asked about first

document.addEventListener("click", (event) => {
  const button = event.target.closest?.("[data-confirm]");
  if (!button) return;
  if (!confirm(button.dataset.confirm)) { event.preventDefault(); return; }
  const confirmation = document.createElement("input");  // or the server would ask, as it does without this script
  Object.assign(confirmation, { type: "hidden", name: "confirmed", value: "1" });
  button.form?.append(confirmation);
});

// --- choosing rows

const boxesOf = (form) => [...form.querySelectorAll("tbody input[type=checkbox]")];

// What is done to chosen rows can be done once one is chosen.
function enableActions() {
  for (const actions of document.querySelectorAll("[data-many]")) {
    const form = actions.closest("form"), boxes = boxesOf(form), all = form.querySelector("[data-all]");
    for (const button of actions.querySelectorAll("button")) button.disabled = !boxes.some((box) => box.checked);
    all.checked = all.defaultChecked = boxes.length > 0 && boxes.every((box) => box.checked);
  }
}
enableActions();
document.addEventListener("htmx:afterSwap", enableActions);

// An action leaves the same rows chosen, by the address. From the first change on they are the person's choice, as any other.
function chooseAnew(form) {
  const address = new URL(location.href);
  if (!address.searchParams.has("chosen")) return;
  address.searchParams.delete("chosen");
  history.replaceState(null, "", address);
  for (const box of boxesOf(form)) {
    const { checked } = box;
    box.defaultChecked = false;
    box.checked = checked;
  }
}

document.addEventListener("change", ({ target }) => {
  const form = target.closest?.("form:has([data-many])");
  if (!form || !target.matches("table input[type=checkbox]")) return;
  if (target.matches("[data-all]")) for (const box of boxesOf(form)) box.checked = target.checked;
  chooseAnew(form);
  enableActions();
});

// --- a form that asks for a page says what is in it alone: the address keeps no empty fields

document.addEventListener("formdata", ({ target, formData }) => {
  if (target.method !== "get") return;
  for (const name of new Set(formData.keys())) {
    const values = formData.getAll(name);
    if (!values.includes("")) continue;
    formData.delete(name);
    for (const value of values) if (value !== "") formData.append(name, value);
  }
});

// --- a menu that was opened closes by Escape and by a click beside it, as if nothing had been chosen in it

function closeMenus(those) {
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    if (!those(menu)) continue;
    if (menu.contains(document.activeElement)) menu.querySelector("summary").focus();
    menu.open = false;
  }
}
document.addEventListener("toggle", ({ target }) => { if (target.matches("details.menu:not([open])")) target.querySelector("form").reset(); }, true);
document.addEventListener("click", (event) => closeMenus((menu) => !menu.contains(event.target)));
document.addEventListener("keydown", (event) => { if (event.key === "Escape") closeMenus(() => true); });

// --- light and dark

function switchTheme() {
  const dark = document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("dethpc-theme", document.documentElement.dataset.theme);
  document.dispatchEvent(new Event("dethpc:theme"));
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => document.dispatchEvent(new Event("dethpc:theme")));
document.querySelector("[data-theme-switch]")?.addEventListener("click", switchTheme);

// --- keyboard

const help = document.getElementById("keys");
document.querySelector("[data-keys]")?.addEventListener("click", showKeys);
const places = { e: "experiments", q: "queue", n: "tasks", c: "cluster", k: "checkpoints", d: "doctor", a: "sessions" };
const TYPED = "input:not([type=checkbox], [type=radio]), textarea, select, dialog";  // where keys mean letters
let going = false;  // after a g
document.addEventListener("keydown", (event) => {
  // A dialog that was closed keeps the focus until the next frame, which a busy browser draws late.
  const at = event.target.closest("dialog:not([open])") ? document.body : event.target;
  if (event.ctrlKey || event.metaKey || event.altKey || at.closest(TYPED)) return;
  const link = going && places[event.key] && document.querySelector(`header a[href="${root}${places[event.key]}"]`);
  if (link) { location.href = link.href; return; }
  going = event.key === "g";
  const search = document.querySelector("[data-search]");
  if (event.key === "?") showKeys();
  else if (event.key === "/" && search) { event.preventDefault(); search.focus(); }
  else if (event.key === "t") switchTheme();
  else if (keyed().some((each) => each.dataset.key === event.key)) {
    event.preventDefault();
    keyed().find((each) => each.dataset.key === event.key).click();
  } else if (event.key === "s") document.querySelector("tr.here input[type=checkbox]")?.click();
  else if (event.key === "e") document.querySelector("[data-first-error]")?.click();
  else if (event.key === "j" || event.key === "k") step(event.key === "j" ? 1 : -1);
  else if (event.key === "Enter" && !at.closest("a, button, summary")) {
    if (at.closest("input") && !at.closest("tr.here")) return;  // it sends the form of its filter
    event.preventDefault();
    document.querySelector("tr.here a")?.click();
  }
});

// The keys go on from the row in which one clicked, or to which one came by Tab.
for (const kind of ["click", "focusin"])
  document.addEventListener(kind, (event) => { const row = event.target.closest?.("tr[data-row]"); if (row) stand(row); });

// What this page has beside: links and buttons that say their key. Those that end something ask first, as by mouse.
function keyed() {
  return [...document.querySelectorAll("main [data-key]")].filter((each) => each.getClientRects().length);
}

function showKeys() {
  const list = help.querySelector("[data-page-keys]");
  list.replaceChildren(...keyed().flatMap((each) => {
    const term = document.createElement("dt"), key = document.createElement("kbd"), told = document.createElement("dd");
    key.textContent = each.dataset.key;
    term.append(key);
    told.textContent = each.textContent.trim().toLowerCase();
    return [term, told];
  }));
  list.hidden = !list.children.length;
  help.showModal();
}

function step(by) {
  const rows = [...document.querySelectorAll("tr[data-row]")];
  if (!rows.length) return;
  const at = rows.findIndex((row) => row.classList.contains("here"));
  const next = rows[Math.min(rows.length - 1, Math.max(0, at + by))];
  stand(next);
  next.scrollIntoView({ block: "nearest" });
}

function stand(row) {
  document.querySelector("tr.here")?.classList.remove("here");
  row.classList.add("here");
}
