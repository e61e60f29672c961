// What this page shows besides its cookie, which only reads: a proof, kept for this origin alone. And a key, kept nowhere but here,
// by which the page knows its master again, or the next one, before it believes anything: whoever takes the port of a master that
// has ended learns nothing that is still good.

const { root, login } = document.body.dataset;
const encoder = new TextEncoder();
let key = null, pass = null;

document.addEventListener("formdata", (event) => {
  if (event.target.method === "post" && !event.formData.has("proof")) event.formData.set("proof", shown());
});

function shown() {
  return localStorage.getItem(login) ?? "";
}

async function prepare() {
  if (!crypto.subtle || !shown()) return;  // browsers have it over TLS and on loopback
  const answer = await fetch(`${root}renewal`, { method: "POST", headers: { "X-Dethpc-Proof": shown() } }).catch(() => null);
  const given = answer?.ok ? await answer.json().catch(() => null) : null;  // its master may die in the middle of it
  if (!given) return;
  key = await crypto.subtle.importKey("raw", bytes(given.key), "AES-GCM", false, ["decrypt"]);
  pass = { name: given.name, server: given.server };
}

// "here": the same master; "next": its successor, of which goOn knows; "ended": this login; "away": nobody who can prove it.
export async function whoAnswers() {
  if (!pass) return unproved();
  const nonce = hex(crypto.getRandomValues(new Uint8Array(32)));
  const body = new URLSearchParams({ name: pass.name, nonce });
  const answer = await fetch(`${root}successor`, { method: "POST", body, credentials: "omit" }).catch(() => null);
  if (answer?.status === 401) return "ended";
  const message = answer?.ok ? await opened(nonce, await answer.json().catch(() => ({}))) : null;
  if (message?.server !== pass.server) return "away";
  if (!message.code) return "here";
  next = message;
  return "next";
}

let next = null;

export function goOn() {
  const to = new URL(`${root}enter`, location.href), at = new URL(root, location.href).pathname;
  if (next.host) to.hostname = next.host;
  to.search = new URLSearchParams({ code: next.code, next: location.pathname.slice(at.length) + location.search });
  location.replace(to);
}

async function unproved() {
  const answer = await fetch(`${root}about`).catch(() => null);
  return !answer ? "away" : answer.status === 401 ? "ended" : "here";
}

async function opened(nonce, { iv, sealed }) {
  const how = { name: "AES-GCM", iv: bytes(iv ?? ""), additionalData: encoder.encode(nonce) };
  const content = await crypto.subtle.decrypt(how, key, bytes(sealed ?? "")).catch(() => null);
  return content && JSON.parse(new TextDecoder().decode(content));
}

function bytes(text) {
  return Uint8Array.from(text.match(/../g) ?? [], (pair) => parseInt(pair, 16));
}

function hex(content) {
  return Array.from(content, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

if (document.getElementById("main")?.dataset.live) prepare();
