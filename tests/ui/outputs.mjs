// Opens SVG and HTML answers in headless Chromium: node outputs.mjs URLS-JSON FOLDER MODULES CHROMIUM.
// URLS: {svg, html, diffSvg, diffHtml}: addresses on the server; files of the same names with
// .svg and .html in FOLDER are opened, too. Closes with counts.
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const [urlsText, folder, modules, chromium] = process.argv.slice(2);
const urls = JSON.parse(urlsText);
const require = createRequire(pathToFileURL(modules + '/').href);
const { chromium: engine } = require('playwright-core');

const browser = await engine.launch({
  executablePath: chromium,
  headless: true,
  args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-sync',
    '--disable-background-networking', '--disable-component-update'],
});
const page = await browser.newPage({ viewport: { width: 1360, height: 860 } });
let requests = [];
const errors = [];
page.on('request', (r) => requests.push(r.url()));
page.on('pageerror', (e) => errors.push(String(e)));
page.on('console', (m) => m.type() === 'error' && errors.push(m.text()));
page.on('dialog', (d) => { errors.push('dialog: ' + d.message()); return d.dismiss(); });

async function open(url) {
  requests = [];
  await page.goto(url);
  await page.waitForSelector('[data-ready]', { state: 'attached' });
  assert.deepEqual(requests.filter((u) => u !== url && !u.endsWith('/favicon.ico')), []);
}
const widthOf = (name) => page.evaluate((n) => {
  for (const g of document.querySelectorAll('#bars > g'))
    if (g.querySelector('title').textContent.split('\n')[0] === n && g.style.display !== 'none')
      return +g.querySelector('rect').getAttribute('width');
  return -1;
}, name);

/* 1180 is the root's width; `pay` has 30 of 52 parts and a sibling. */
async function svg(url) {
  await open(url);
  const whole = await widthOf('total'), before = await widthOf('pay');
  assert.ok(Math.abs(before / whole - 30 / 52) < 1e-3, `${before} of ${whole}`);
  await page.locator('#bars > g', { hasText: 'pay' }).last().locator('rect').hover();
  assert.match(await page.textContent('#details'), /^pay {2}30ns \(57\.69%\)/);
  await page.locator('#bars > g', { hasText: 'pay' }).last().locator('rect').click();
  assert.equal(await widthOf('pay'), whole);
  assert.equal(await widthOf('list'), -1);
  assert.equal(await widthOf('main'), whole);
  await page.click('#reset');
  assert.equal(await widthOf('pay'), before);
  await page.fill('#search', 'LIST');
  assert.equal(await page.textContent('#matched'), 'matched 42.31%');
  assert.equal(await page.locator('rect.hit').count(), 1);
}

async function html(url, two) {
  await open(url);
  const drawn = await page.evaluate(() => {
    const c = document.getElementById('canvas');
    const p = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
    let n = 0;
    for (let i = 0; i < p.length; i += 4) n += p[i + 3] > 0;
    return n;
  });
  assert.ok(drawn > 5000, `${drawn} pixels`);
  assert.match(await page.textContent('#total'), two ? /^left 52ns, right 63ns$/ : /^total 52ns$/);
  const box = await page.locator('#canvas').boundingBox();
  await page.mouse.move(box.x + 20, box.y + 18 + 9);
  assert.match(await page.textContent('#tip'), two ? /^main\nleft 52ns/ : /^main\n52ns \(100\.00%\)/);
  await page.mouse.click(box.x + 20, box.y + 18 + 9);
  assert.equal(await page.isVisible('#reset'), true);
  await page.keyboard.press('Escape');
  assert.equal(await page.isVisible('#reset'), false);
  await page.click('#table-button');
  await page.fill('#search', two ? 'list' : '');
  const first = await page.locator('#rows tr').first().locator('td').allTextContents();
  assert.deepEqual(first, two ? ['list', '22ns', '3ns', '-37.55 pp'] : ['pay', '30ns', '30ns', '57.69%']);
  await page.fill('#search', 'main');
  assert.equal(await page.locator('#rows tr').count(), 1);
  await page.fill('#search', '');
}

/* Names that would run if they were markup: nothing ran, and each is there as text. */
async function hostile(url, isSvg) {
  await open(url);
  assert.equal(await page.evaluate(() => window.owned), undefined);
  assert.equal(await page.locator('img, iframe, object').count(), 0);
  if (!isSvg) await page.click('#table-button');
  const text = await page.evaluate(() => document.documentElement.textContent);
  assert.ok(text.includes('<img src=x onerror=owned=1>'), 'the name is shown');
}

const cases = {
  'SVG: hover, zoom, reset, search': () => svg(urls.svg),
  'SVG from a file': () => svg(pathToFileURL(folder + '/flame.svg').href),
  'HTML: graph, hover, zoom, table, search': () => html(urls.html, false),
  'HTML from a file': () => html(pathToFileURL(folder + '/flame.html').href, false),
  'a comparison as HTML': () => html(urls.diffHtml, true),
  async 'a comparison as SVG'() {
    await open(urls.diffSvg);
    const fill = (name) => page.evaluate((n) => {
      for (const g of document.querySelectorAll('#bars > g'))
        if (g.querySelector('title').textContent.startsWith(n + '\n'))
          return g.querySelector('rect').getAttribute('fill');
      return null;
    }, name);
    assert.match(await fill('list'), /^hsl\(145,/); // a smaller share on the right: green
    assert.match(await fill('pay'), /^hsl\(8,/);
  },
  'hostile names in SVG': () => hostile(urls.hostileSvg, true),
  'hostile names in HTML': () => hostile(urls.hostileHtml, false),
  async 'the policy keeps the page apart from the server'() {
    await open(urls.html);
    assert.equal(await page.evaluate(() => window.origin), 'null');
  },
  async 'nothing threw'() {
    assert.deepEqual(errors.filter((e) => !e.includes('favicon')), []);
  },
};

let passed = 0;
let failed = 0;
for (const [name, run] of Object.entries(cases)) {
  try {
    await run();
    passed++;
    console.log(`ok   ${name}`);
  } catch (e) {
    failed++;
    await page.screenshot({ path: `${folder}/failed-${failed}.png` }).catch(() => {});
    console.log(`FAIL ${name}\n${e.stack}`);
  }
}
await page.screenshot({ path: `${folder}/last.png` }).catch(() => {});
await browser.close();
console.log(`${passed} passed, ${failed} failed`);
process.exit(failed ? 1 : 0);
