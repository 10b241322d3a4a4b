// SPDX-License-Identifier: Apache-2.0
// Three times as much of hot as of cold.
function spin(n) {
  let x = n;
  for (let i = 0; i < n; i++) x = (Math.imul(x, 1103515245) + 12345) | 0;
  return x;
}

function hot() {
  let x = 0;
  for (let i = 0; i < 3; i++) x += spin(1e6);
  return x;
}

function cold() {
  return spin(1e6);
}

function main() {
  const end = Date.now() + 2000;
  let x = 0;
  while (Date.now() < end) x += hot() + cold();
  return x;
}

main();
