// Drives the page in headless Chromium: node page.mjs URL SCREENSHOT-FOLDER. Closes with counts.
import assert from 'node:assert/strict';
import { mkdirSync } from 'node:fs';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const [url, shots, modules, chromium] = process.argv.slice(2);
const require = createRequire(pathToFileURL(modules + '/').href);
const { chromium: engine } = require('playwright-core');
mkdirSync(shots, { recursive: true });

const browser = await engine.launch({
  executablePath: chromium,
  headless: true,
  args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-sync',
    '--disable-background-networking', '--disable-component-update'],
});
const page = await browser.newPage({ viewport: { width: 1360, height: 860 } });
const elsewhere = [];
const errors = [];
const origin = new URL(url).origin;
page.on('request', (r) => {
  if (!r.url().startsWith(origin) && !r.url().startsWith('data:')) elsewhere.push(r.url());
});
page.on('pageerror', (e) => errors.push(String(e)));
page.on('console', (m) => m.type() === 'error' && errors.push(m.text()));

const cases = {
  async 'the flame graph of the self-profile appears'() {
    await page.goto(url + '/#service=embertree&last=900&live=0');
    await page.waitForSelector('body[data-ready]');
    for (let i = 0; i < 60 && (await page.textContent('#total')) === ''; i++) {
      await page.waitForTimeout(500);
      await page.click('#refresh');
      await page.waitForTimeout(500);
    }
    assert.equal(await page.inputValue('#service'), 'embertree');
    assert.match(await page.inputValue('#type'), /^process_cpu:cpu:nanoseconds/);
    assert.match(await page.textContent('#total'), /total .*s/);
    const label = await page.getAttribute('#flame canvas', 'aria-label');
    assert.ok(Number(label.match(/of (\d+) functions/)[1]) > 5, label);
    await page.screenshot({ path: shots + '/flame.png' });
  },
  async 'the timeline has a bar where data is'() {
    const drawn = await page.evaluate(() => {
      const c = document.querySelector('#timeline canvas');
      const p = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
      let orange = 0;
      for (let i = 0; i < p.length; i += 4)
        if (p[i + 3] > 60 && p[i] > 180 && p[i + 2] < 120) orange++;
      return orange;
    });
    assert.ok(drawn > 20, `${drawn} orange pixels`);
    const [box, inner] = [await page.locator('#timeline').boundingBox(), await page.locator('#timeline canvas').boundingBox()];
    assert.ok(inner.x + inner.width <= box.x + box.width, 'it stays in its box');
  },
  async 'hovering tells self and total, a click zooms, the button resets'() {
    const box = await page.locator('#flame canvas').boundingBox();
    await page.mouse.move(box.x + 40, box.y + 30);
    await page.waitForSelector('#tip:not([hidden])');
    assert.match(await page.textContent('#tip'), /total .*self /);
    await page.mouse.click(box.x + 40, box.y + 30);
    assert.equal(await page.isDisabled('#reset'), false);
    assert.match(await page.textContent('#crumbs'), /^total › /);
    await page.screenshot({ path: shots + '/zoomed.png' });
    await page.click('#reset');
    assert.equal(await page.isDisabled('#reset'), true);
  },
  async 'search says how much of the total it found'() {
    await page.fill('#search', 'e');
    assert.match(await page.textContent('#found'), /% of the total/);
    await page.fill('#search', 'no function is called this');
    assert.match(await page.textContent('#found'), /^0 %/);
    await page.fill('#search', '');
  },
  async 'the table lists functions'() {
    await page.click('#tab-table');
    assert.ok((await page.locator('#table tbody tr').count()) > 3);
    await page.screenshot({ path: shots + '/table.png' });
    await page.click('#tab-flame');
  },
  async 'another service and its exact numbers'() {
    await page.selectOption('#service', 'shop');
    await page.waitForFunction(() => document.querySelector('#total').textContent.includes('total 420 ms'));
    await page.click('#tab-table');
    const rows = await page.locator('#table tbody tr').allTextContents();
    assert.ok(rows.some((r) => /^pay.*300 ms/.test(r)), rows.join(' | '));
    assert.match(page.url(), /service=shop/);
    await page.click('#tab-flame');
    await page.screenshot({ path: shots + '/shop.png' });
  },
  async 'the table knows the whole profile; a function opens as a sandwich'() {
    await page.click('#tab-table');
    await page.locator('#table tbody tr', { hasText: 'pay' }).getByRole('button').click();
    await page.waitForFunction(() => document.querySelector('#looked').textContent === 'Sandwich of pay');
    assert.equal(await page.isVisible('#callers-view'), true);
    assert.match(await page.textContent('#total'), /total 300 ms/);
    const label = (id) => page.getAttribute(`#${id} canvas`, 'aria-label');
    assert.match(await label('callers'), /of 3 functions/); // total, pay, serve
    assert.match(await label('flame'), /of 2 functions/);
    await page.screenshot({ path: shots + '/sandwich.png' });
    await page.reload(); // a link shows the same
    await page.waitForFunction(() => document.querySelector('#looked').textContent === 'Sandwich of pay');
    await page.click('#whole');
    await page.waitForFunction(() => document.querySelector('#total').textContent.includes('total 420 ms'));
    assert.equal(await page.isVisible('#callers-view'), false);
  },
  async 'a bar that is zoomed can be looked at alone'() {
    const box = await page.locator('#flame canvas').boundingBox();
    await page.mouse.click(box.x + 10, box.y + 50); // cart, the first child of serve
    assert.match(await page.textContent('#crumbs'), /serve › cart$/);
    await page.click('#focus');
    await page.waitForFunction(() => document.querySelector('#looked').textContent === 'Stacks with cart');
    await page.waitForFunction(() => document.querySelector('#total').textContent.includes('total 20 ms'));
    await page.click('#whole');
    await page.waitForFunction(() => document.querySelector('#total').textContent.includes('total 420 ms'));
  },
  async 'the time before stands beside'() {
    await page.check('#before');
    await page.waitForFunction(() => document.querySelector('#total').textContent === 'left 0, right 420 ms');
    assert.equal(await page.isVisible('#tab-table'), false);
    assert.match(page.url(), /before=1/);
    assert.equal(await page.isVisible('#before-key'), true);
    assert.match(await page.textContent('#notice'), /^Nothing was measured in the time before/);
    await page.screenshot({ path: shots + '/before.png' });
    for (const width of [1000, 1300, 1600]) {
      await page.setViewportSize({ width, height: 860 });
      for (const scheme of ['light', 'dark']) {
        await page.emulateMedia({ colorScheme: scheme });
        await page.waitForTimeout(200);
        await page.screenshot({ path: `${shots}/before-${width}-${scheme}.png` });
      }
      const middle = async (selector) => {
        const box = await page.locator(selector).boundingBox();
        return box.y + box.height / 2;
      };
      for (const beside of ['#reset', '#total', 'label:has(#before) span', '#search'])
        assert.ok(Math.abs((await middle('#before')) - (await middle(beside))) < 3, `${beside} at ${width}`);
      const wide = await page.evaluate(() => document.documentElement.scrollWidth);
      assert.ok(wide <= width, `${wide} wide at ${width}`);
    }
    await page.emulateMedia({ colorScheme: null });
    await page.setViewportSize({ width: 1360, height: 860 });
    await page.uncheck('#before');
    await page.waitForFunction(() => document.querySelector('#total').textContent.includes('total 420 ms'));
    assert.equal(await page.isVisible('#tab-table'), true);
    assert.equal(await page.isVisible('#before-key'), false);
  },
  async 'what was cut off opens at a click'() {
    await page.selectOption('#service', 'wide');
    await page.waitForFunction(() => document.title.startsWith('wide') && !document.body.classList.contains('loading'));
    const bars = async () =>
      Number((await page.getAttribute('#flame canvas', 'aria-label')).match(/of (\d+) functions/)[1]);
    const before = await bars();
    assert.ok(before > 16000 && before < 17000, `${before} bars`);
    const box = await page.locator('#flame canvas').boundingBox();
    await page.mouse.click(box.x + box.width - 20, box.y + 70);
    await page.waitForFunction(() => document.querySelector('#looked').textContent === 'Below b');
    await page.waitForFunction(() => !document.body.classList.contains('loading'));
    assert.equal(await bars(), 3 + 12000);
    await page.click('#whole');
    await page.waitForFunction(() => document.querySelector('#looked').hidden);
    await page.selectOption('#service', 'shop');
    await page.waitForFunction(() => document.querySelector('#total').textContent.includes('total 420 ms'));
  },
  async 'a note is written, drawn, found again and deleted'() {
    const marked = (n) => page.waitForFunction((n) => document.querySelector('#timeline').dataset.notes === String(n), n);
    const blue = () => page.evaluate(() => {
      const c = document.querySelector('#timeline canvas');
      const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
      let n = 0;
      for (let i = 0; i < d.length; i += 4) n += d[i] === 0x19 && d[i + 1] === 0x71 && d[i + 2] === 0xc2;
      return n;
    });
    await marked(0);
    assert.equal(await blue(), 0);
    assert.equal(await page.isVisible('#notes form'), false);
    const over = await page.locator('#timeline .u-over').boundingBox();
    await page.mouse.click(over.x + over.width / 2, over.y + over.height / 2);
    await page.fill('#notes input', 'deployed <b>1.4</b>');
    await page.press('#notes input', 'Enter');
    await marked(1);
    assert.ok((await blue()) > 50);
    assert.match(await page.textContent('#notes li'), /deployed <b>1\.4<\/b>/);
    await page.screenshot({ path: shots + '/note.png' });
    await page.reload();
    await marked(1);
    await page.click('#notes li button');
    await marked(0);
    assert.equal(await page.isVisible('#notes ul'), false);
  },
  async 'where nothing was pushed it says how to begin'() {
    await page.goto('about:blank'); // else a service is chosen already
    await page.goto(url + '/#from=1600000000000&until=1600000600000');
    await page.waitForSelector('#empty:not([hidden])');
    assert.match(await page.textContent('#empty-push'), new RegExp(`curl --data-binary @- '${url}/ingest\\?name=my\\.app\\.cpu'`));
    for (const hidden of ['#timeline', '#graph', '#notice']) assert.equal(await page.isVisible(hidden), false, hidden);
    await page.screenshot({ path: shots + '/empty.png' });
    await page.goto(url + '/#service=shop&live=0');
    await page.waitForFunction(() => document.querySelector('#total').textContent.includes('total 420 ms'));
    assert.equal(await page.isVisible('#empty'), false);
    assert.equal(await page.isVisible('#timeline'), true);
  },
  async 'labels narrow, a wrong one is explained'() {
    await page.fill('#labels', 'version="v2"');
    await page.press('#labels', 'Enter');
    await page.waitForFunction(() => document.querySelector('#total').textContent.includes('total 120 ms'));
    await page.fill('#labels', 'version=~"("');
    await page.press('#labels', 'Enter');
    await page.waitForSelector('#notice.bad');
    assert.match(await page.textContent('#notice'), /400/);
    await page.fill('#labels', 'version=v2'); // told by the column of what was typed, over what is old now
    await page.press('#labels', 'Enter');
    await page.waitForFunction(() => /labels: wanted a quoted value at column 9; write/.test(document.querySelector('#notice').textContent));
    assert.equal(await page.evaluate(() => getComputedStyle(document.querySelector('#graph')).opacity), '0.4');
    await page.screenshot({ path: shots + '/wrong-labels.png' });
    await page.fill('#labels', 'version="v3"');
    await page.press('#labels', 'Enter');
    await page.waitForFunction(() => document.querySelector('#notice').textContent.startsWith('No data in this range'));
    assert.equal(await page.isVisible('#download'), false);
    assert.equal(await page.evaluate(() => getComputedStyle(document.querySelector('#graph')).opacity), '1');
    await page.screenshot({ path: shots + '/no-data.png' });
    // The failed request is also an error of the console, and expected.
    errors.length = 0;
  },
  async 'a profile is uploaded and shown'() {
    await page.fill('#labels', '');
    await page.press('#labels', 'Enter');
    await page.waitForFunction(() => document.querySelector('#total').textContent.includes('total 420 ms'));
    await page.click('#view-adhoc');
    await page.waitForFunction(() => document.querySelector('#adhoc-list').textContent.includes('Nothing was uploaded'));
    assert.equal(await page.isVisible('#service'), false);
    assert.equal(await page.isVisible('#graph'), false);
    assert.match(await page.getAttribute('#view-services', 'href'), /service=shop/); // where we came from
    const folded = (text) => ({ mimeType: 'text/plain', buffer: Buffer.from(text) });
    await page.setInputFiles('#adhoc-file', [
      { name: 'before.folded', ...folded('serve;pay 60\nserve;list;sort 40\n') },
      { name: 'broken <b>.txt', ...folded('what is this\n') },
      { name: 'after.folded', ...folded('serve;pay 20\nserve;list;sort 70\nserve;cart 10\n') },
    ]);
    await page.waitForFunction(() => document.querySelector('#adhoc-name').textContent === 'after.folded');
    await page.waitForFunction(() => document.querySelector('#total').textContent.includes('total 1 s'));
    await page.waitForSelector('#adhoc-errors:not([hidden])');
    assert.match(await page.textContent('#adhoc-errors'), /broken <b>\.txt: 400/);
    assert.equal(await page.locator('#adhoc-list tbody tr').count(), 2);
    assert.equal(await page.isVisible('#adhoc-progress'), false);
    errors.length = 0; // the refused file is also an error of the console
    await page.screenshot({ path: shots + '/adhoc.png' });
    await page.emulateMedia({ colorScheme: 'dark' });
    await page.screenshot({ path: shots + '/adhoc-dark.png' });
    await page.emulateMedia({ colorScheme: 'light' });
  },
  async 'two uploaded profiles are compared'() {
    await page.locator('#adhoc-list tr', { hasText: 'before.folded' }).getByText('Compare').click();
    await page.waitForFunction(() => document.querySelector('#adhoc-name').textContent === 'after.folded → before.folded');
    await page.click('#adhoc-swap');
    await page.waitForFunction(() => document.querySelector('#adhoc-name').textContent === 'before.folded → after.folded');
    await page.waitForFunction(() => document.querySelector('#total').textContent === 'left 1 s, right 1 s');
    const box = await page.locator('#flame canvas').boundingBox();
    await page.mouse.move(box.x + box.width - 10, box.y + 50);
    await page.waitForSelector('#tip:not([hidden])');
    assert.match(await page.textContent('#tip'), /pay.*left 600 ms \(60\.0 %\) · right 200 ms \(20\.0 %\) · less/);
    await page.screenshot({ path: shots + '/adhoc-diff.png' });
    await page.emulateMedia({ colorScheme: 'dark' });
    await page.screenshot({ path: shots + '/adhoc-diff-dark.png' });
    await page.emulateMedia({ colorScheme: 'light' });
    await page.reload(); // a link shows the same
    await page.waitForFunction(() => document.querySelector('#adhoc-name').textContent === 'before.folded → after.folded');
    await page.click('#adhoc-alone');
    await page.waitForFunction(() => document.querySelector('#adhoc-name').textContent === 'before.folded');
  },
  async 'an uploaded profile is deleted at the second click'() {
    const row = page.locator('#adhoc-list tr', { hasText: 'before.folded' });
    await row.locator('[data-act=delete]').click();
    assert.equal(await page.locator('#adhoc-list tbody tr').count(), 2);
    await row.getByText('Really?').click();
    await page.waitForFunction(() => document.querySelectorAll('#adhoc-list tbody tr').length === 1);
    assert.equal(await page.isVisible('#graph'), false);
    await page.click('#view-services');
    await page.waitForSelector('#service');
    await page.waitForFunction(() => document.querySelector('#total').textContent.includes('total'));
    assert.equal(await page.isVisible('#adhoc'), false);
  },
  async 'nothing left this host and nothing threw'() {
    assert.deepEqual(elsewhere, []);
    assert.deepEqual(errors, []);
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
    await page.screenshot({ path: `${shots}/failed-${failed}.png` }).catch(() => {});
    console.log(`FAIL ${name}\n${e.stack}`);
  }
}
await browser.close();
console.log(`${passed} passed, ${failed} failed`);
process.exit(failed ? 1 : 0);
