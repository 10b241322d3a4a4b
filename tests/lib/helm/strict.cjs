// Are these manifests what Kubernetes and the Prometheus operator take? Reads a JSON array of objects on
// standard input, prints a line for each fault, ends with 1 if there is one, else with the number of objects.
//
// The models' validators say what has a wrong kind or is missing, and pass over fields that they do not
// know. So each object is shown to its validator through a proxy that notes which fields were looked at:
// one that nobody looked at is unknown, such as a misspelt `readynessProbe`.
"use strict";

const fs = require("fs");
const path = require("path");

const where = {
  v1: ["kubernetes-models", "v1"],
  "apps/v1": ["kubernetes-models", "apps/v1"],
  "policy/v1": ["kubernetes-models", "policy/v1"],
  "networking.k8s.io/v1": ["kubernetes-models", "networking.k8s.io/v1"],
  "rbac.authorization.k8s.io/v1": ["kubernetes-models", "rbac.authorization.k8s.io/v1"],
  "monitoring.coreos.com/v1": ["@kubernetes-models/prometheus-operator", "monitoring.coreos.com/v1"],
};

// A view of `value` that removes from `unseen` the path of each field that is read.
function watched(value, at, unseen) {
  if (value === null || typeof value !== "object") return value;
  for (const key of Object.keys(value)) unseen.add(`${at}/${key}`);
  return new Proxy(value, {
    get(object, key) {
      if (typeof key !== "string" || !Object.hasOwn(object, key) || (Array.isArray(object) && key === "length"))
        return object[key];
      unseen.delete(`${at}/${key}`);
      return watched(object[key], `${at}/${key}`, unseen);
    },
  });
}

// The packages do not export their validators by name; the module of each kind names the file it has its own from.
function validator(manifest) {
  const [library, group] = where[manifest.apiVersion] ?? [];
  if (!library) return undefined;
  const file = path.join(__dirname, "node_modules", library, group, `${manifest.kind}.js`);
  if (!fs.existsSync(file)) return undefined;
  const schema = /_schemas\/\w+\.js/.exec(fs.readFileSync(file, "utf8"))[0];
  return require(path.join(__dirname, "node_modules", library, schema)).validate;
}

function faults(manifest) {
  const validate = validator(manifest);
  if (!validate) return [`${manifest.apiVersion} ${manifest.kind}: no such kind`];
  const unseen = new Set();
  const said = [];
  if (!validate(watched(manifest, "", unseen)))
    said.push(...validate.errors.map((e) => `${e.instancePath} ${e.message ?? e.keyword}`));
  for (const at of unseen) said.push(`unknown field ${at}`);
  return said.map((text) => `${manifest.kind} ${manifest.metadata?.name}: ${text}`);
}

const all = JSON.parse(fs.readFileSync(0, "utf8"));
const found = all.flatMap(faults);
for (const line of found) console.error(line);
console.log(all.length);
process.exit(found.length ? 1 : 0);
