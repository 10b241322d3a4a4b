// A workload with a known hot function under the Node SDK: three quarters of the time belong to
// burnHot, one quarter to burnCold; memory is kept by keepMemory.
const Pyroscope = require('@pyroscope/nodejs');

let sink = 0;
const kept = [];

function burnHot(rounds) {
  let x = sink;
  for (let i = 0; i < rounds; i++) x = (Math.imul(x, 1664525) + i) | 0;
  sink = x;
}

function burnCold(rounds) {
  let x = sink;
  for (let i = 0; i < rounds; i++) x = (Math.imul(x, 22695477) + i) | 0;
  sink = x;
}

function keepMemory() {
  kept.push(new Array(16384).fill(kept.length));
}

const { SERVER, APP, TENANT, BASIC_USER, BASIC_PASSWORD, BEARER, SECONDS_TO_RUN } = process.env;
Pyroscope.init({
  serverAddress: SERVER,
  appName: APP,
  tags: { region: 'north' },
  tenantID: TENANT,
  basicAuthUser: BASIC_USER,
  basicAuthPassword: BASIC_PASSWORD,
  authToken: BEARER,
  flushIntervalMs: 5000,
  wall: { samplingDurationMs: 5000, collectCpuTime: true },
});
Pyroscope.start();

const until = Date.now() + 1000 * Number(SECONDS_TO_RUN);
function turn() {
  if (Date.now() < until) {
    // One stretch of work as long as its labels: a context is taken when a sample ends.
    Pyroscope.wrapWithLabels({ job: 'burn' }, () => {
      for (let i = 0; i < 5; i++) {
        burnHot(3_000_000);
        burnCold(1_000_000);
      }
      if (kept.length < 256) keepMemory();
    });
    setTimeout(turn, 0);
  } else {
    Pyroscope.stop().then(() => setTimeout(() => process.exit(0), 1000));
  }
}
turn();
