// An app of Open OnDemand, which Passenger runs as the user who is logged in there: it starts this user's master where none runs,
// logs the browser in, and passes the pages below det/ on. Only Node's own modules; the event loop carries any number of streams.
"use strict";

const { execFile } = require("child_process");
const http = require("http");
const path = require("path");
const tls = require("tls");

const DET = process.env.DETHPC_DET || path.join(__dirname, "det");
const BASE = (process.env.PASSENGER_BASE_URI || "").replace(/\/$/, "");
const HOP_BY_HOP = ["connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer", "transfer-encoding", "upgrade"];

let master = null;  // a promise of {options}: how to reach it

// det starts the master where none runs. The link is good for one login.
function ask() {
  return new Promise((resolve, reject) => {
    execFile(DET, ["ui", "--no-browser", "--json"], { timeout: 120_000, maxBuffer: 1 << 20 }, (error, out, complaint) => {
      if (error) { reject(new Error(complaint.trim() || error.message)); return; }
      try { resolve(JSON.parse(out.slice(out.indexOf("{")))); }  // a login shell may greet first
      catch { reject(new Error(`${DET} ui --json said: ${out.slice(0, 500)}`)); }
    });
  });
}

function reached(found) {
  if (found.socket) return { socketPath: found.socket };
  const url = new URL(found.url);
  const where = { host: url.hostname, port: url.port };
  return found.certificate ? { agent: pinned({ ...where, certificate: found.certificate }), ...where } : where;
}

// The master's certificate is its own: it is known by its SHA-256, which only the user could write down.
function pinned(where) {
  const agent = new http.Agent({ keepAlive: true, maxSockets: Infinity });
  agent.createConnection = (options, done) => {
    const socket = tls.connect({ host: where.host, port: where.port, rejectUnauthorized: false }, () => {
      const shown = (socket.getPeerCertificate().fingerprint256 || "").replaceAll(":", "").toLowerCase();
      if (shown === where.certificate) { socket.off("error", done); done(null, socket); }
      else socket.destroy(new Error("this is not your master: it shows another certificate"));
    });
    socket.once("error", done);
  };
  return agent;
}

function remember(asked) {
  master = asked.then(reached);
  master.catch(() => { master = null; });
  return master;
}

async function enter(response) {
  const asked = ask();
  remember(asked);
  const code = new URL((await asked).url).search;
  response.writeHead(303, { location: `${BASE}/det/enter${code}`, "cache-control": "no-store", "referrer-policy": "no-referrer" });
  response.end();
}

async function pass(request, response, target) {
  const to = await (master || remember(ask()));
  const headers = { ...request.headers, "x-forwarded-host": request.headers["x-forwarded-host"] || request.headers.host };
  for (const name of HOP_BY_HOP) delete headers[name];
  if (request.headers["transfer-encoding"]) headers["transfer-encoding"] = "chunked";
  const asked = http.request({ ...to, method: request.method, path: target, headers });
  asked.on("response", (answer) => {
    const passed = { ...answer.headers };
    for (const name of HOP_BY_HOP) delete passed[name];
    response.writeHead(answer.statusCode, passed);
    response.flushHeaders();
    answer.pipe(response);
    answer.on("aborted", () => response.destroy());
  });
  asked.on("error", (error) => { master = null; fail(response, error); });  // it may have moved: the next request asks where it is
  response.on("close", () => asked.destroy());
  request.pipe(asked);
}

function fail(response, error) {
  console.error(error.message);
  if (response.headersSent) { response.destroy(); return; }
  response.writeHead(502, { "content-type": "text/plain; charset=utf-8", "cache-control": "no-store" });
  response.end(`dethpc's master does not answer: ${error.message}\n\nOpen ${BASE || "/"} again to start it.\n`);
}

http.createServer((request, response) => {
  const target = request.url.startsWith(`${BASE}/`) ? request.url.slice(BASE.length) : request.url;
  const done = target.startsWith("/det/") ? pass(request, response, target) : enter(response);
  done.catch((error) => fail(response, error));
}).listen(process.env.PORT || "passenger");
