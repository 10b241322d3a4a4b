// An S3 server for tests: s3rver keeps the objects but checks no signature; so a proxy stands in
// front of it that computes each Signature V4 anew with another implementation (aws4), checks the
// hash of the body, knows `If-None-Match: *`, and fails when told to.
//
//   node server.mjs FOLDER    prints "PORT\n" when it listens; ends with its standard input
//   S3_HOST=10.0.0.1 S3_PORT=9000   listens there, and does not look at its standard input
//   SIGUSR2: kill -9, when no request is under way that changes an object; others are cut off. (s3rver
//   writes in place, S3 does not.) Whoever waits for such a request hears no answer.
//   POST /_fail?n=2&status=503   the next 2 requests get this status; status=0: cut off half-way
import aws4 from "aws4";
import crypto, { createHash } from "node:crypto";
import http from "node:http";
import S3rver from "s3rver";

const KEY = "test-key", SECRET = "test/secret+key", BUCKET = "profiles";
// s3rver hides names in tokens by DES, which OpenSSL 3 has no more; nobody here reads the tokens.
crypto.createCipheriv = () => ({ update: (text) => Buffer.from(text), final: () => Buffer.alloc(0) });
const store = new S3rver({
  port: 0, address: "127.0.0.1", silent: true, directory: process.argv[2],
  configureBuckets: [{ name: BUCKET }],
});
const { port: storePort } = await store.run();
let failing = { n: 0, status: 503 };
let seen = { requests: 0, refused: 0 };
let ending = false, changing = 0;
const changes = (req) => req.method !== "GET" && req.method !== "HEAD";
const endIfQuiet = () => { if (ending && changing === 0) process.kill(process.pid, "SIGKILL"); };
process.on("SIGUSR2", () => { ending = true; endIfQuiet(); });

const sha256 = (data) => createHash("sha256").update(data).digest("hex");
const xml = (code, text) => `<Error><Code>${code}</Code><Message>${text}</Message></Error>`;

// Empty: fine; else why not.
function wrong(req, body) {
  const auth = req.headers.authorization ?? "";
  const names = /SignedHeaders=([^,]+)/.exec(auth)?.[1]?.split(";") ?? [];
  const region = /Credential=[^/]+\/\d+\/([^/]+)\//.exec(auth)?.[1];
  for (const must of ["host", "x-amz-date", "x-amz-content-sha256"])
    if (!names.includes(must)) return `${must} is not signed`;
  if (req.headers["x-amz-content-sha256"] !== sha256(body)) return "the body has another hash";
  const asked = Date.parse(req.headers["x-amz-date"].replace(
    /(....)(..)(..)T(..)(..)(..)Z/, "$1-$2-$3T$4:$5:$6Z"));
  if (!(Math.abs(asked - Date.now()) < 15 * 60 * 1000)) return "RequestTimeTooSkewed";
  if (!auth.includes(`Credential=${KEY}/`)) return "InvalidAccessKeyId";
  const headers = {};
  for (const name of names) headers[name] = req.headers[name];
  const again = aws4.sign({
    host: req.headers.host, method: req.method, path: req.url, headers, service: "s3", region,
    body: body.length ? body : undefined,
    extraHeadersToInclude: Object.fromEntries(names.map((name) => [name, true])),
    extraHeadersToIgnore: Object.fromEntries(Object.keys(req.headers)
      .filter((name) => !names.includes(name)).map((name) => [name, true])),
  }, { accessKeyId: KEY, secretAccessKey: SECRET });
  return again.headers.Authorization === auth ? "" : "the signature does not match";
}

// Without the signature: the store knows another key, and has nothing left to check.
const pass = (req, body, method = req.method) => new Promise((resolve, reject) => {
  const { authorization, ...rest } = req.headers;
  const to = http.request({ port: storePort, host: "127.0.0.1", method, path: req.url,
    headers: method === req.method ? rest : { host: req.headers.host } }, (reply) => {
    const parts = [];
    reply.on("data", (part) => parts.push(part));
    reply.on("end", () => resolve({ status: reply.statusCode, headers: reply.headers,
      body: Buffer.concat(parts) }));
  });
  to.on("error", reject);
  to.end(method === req.method ? body : undefined);
});

async function answer(req, res, body) {
  if (req.url.startsWith("/_fail")) {
    const query = new URL(req.url, "http://x").searchParams;
    failing = { n: +query.get("n"), status: +query.get("status") };
    return res.end(JSON.stringify(seen));
  }
  seen.requests++;
  if (failing.n > 0) {
    failing.n--;
    if (failing.status === 0) return req.socket.destroy();
    return res.writeHead(failing.status, { "retry-after": "0" }).end(xml("SlowDown", "asked to"));
  }
  const why = wrong(req, body);
  if (why) {
    seen.refused++;
    return res.writeHead(403).end(xml(/^\w+$/.test(why) ? why : "SignatureDoesNotMatch", why));
  }
  if (req.method === "PUT" && req.headers["if-none-match"] === "*"
      && (await pass(req, body, "HEAD")).status === 200)
    return res.writeHead(412).end(xml("PreconditionFailed", "it is there"));
  if (ending) return req.socket.destroy();
  if (!changes(req)) {
    const reply = await pass(req, body);
    return res.writeHead(reply.status, reply.headers).end(reply.body);
  }
  changing++;
  try {
    const reply = await pass(req, body);
    if (!ending) res.writeHead(reply.status, reply.headers).end(reply.body);
  } finally {
    changing--;
    endIfQuiet();
  }
}

http.createServer((req, res) => {
  const parts = [];
  req.on("data", (part) => parts.push(part));
  req.on("end", () => answer(req, res, Buffer.concat(parts)).catch((e) => {
    res.writeHead(500).end(xml("InternalError", String(e)));
  }));
}).listen(+(process.env.S3_PORT ?? 0), process.env.S3_HOST ?? "127.0.0.1", function () { console.log(this.address().port); });
if (!process.env.S3_HOST) process.stdin.resume().on("end", () => process.exit(0));
