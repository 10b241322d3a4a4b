// A workload with a known hot function for `node --cpu-prof`: three quarters of the time belong to
// burnHot, one quarter to burnCold.
function burnHot(rounds) {
  let x = 1;
  for (let i = 0; i < rounds; i++) x = (Math.imul(x, 1664525) + i) >>> 0;
  return x;
}

function burnCold(rounds) {
  let x = 2;
  for (let i = 0; i < rounds; i++) x = (Math.imul(x, 22695477) + i) >>> 0;
  return x;
}

let x = 0;
const until = Date.now() + 1000 * Number(process.env.SECONDS_TO_RUN);
while (Date.now() < until) {
  x ^= burnHot(3000000);
  x ^= burnCold(1000000);
}
if (x === -1) console.log(x);
