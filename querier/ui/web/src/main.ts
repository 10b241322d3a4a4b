/** The page: controls to state, state to queries, answers to views. */
import './style.css';
import { Adhoc } from './adhoc';
import * as api from './api';
import { Flame } from './flame';
import { percent, typeTitle, typeUnit, value } from './format';
import { bounds, RANGES, read, readAdhoc, write, type State } from './state';
import { Table, type By } from './table';
import { TimelineView } from './timeline';
import { NotesView } from './notes';
import { change as changeOf, decode, decodeDiff, functions, path, type Tree } from './tree';

const LIVE_MS = 10_000;
const CPU_TYPE = 'process_cpu:cpu:nanoseconds:cpu:nanoseconds';
const el = <T extends HTMLElement>(id: string) => document.getElementById(id) as T;
const service = el<HTMLSelectElement>('service');
const type = el<HTMLSelectElement>('type');
const labels = el<HTMLInputElement>('labels');
const range = el<HTMLSelectElement>('range');
const live = el<HTMLInputElement>('live');
const search = el<HTMLInputElement>('search');
const notice = el('notice');
const tip = el('tip');

let state: State = read(location.hash);
let known: api.ServiceTypes[] = [];
let tree: Tree | null = null;
/** Of a sandwich: the upper half. */
let callers: Tree | null = null;
let asking: AbortController | null = null;
/** The question that is shown. */
let asked: api.Asked | null = null;
let timer = 0;

/** Of the uploaded profile that is shown; null: services are. */
let adhocUnit: string | null = null;

const unit = () => adhocUnit ?? typeUnit(state.type);

const flame = new Flame(el('flame'), {
  label(bar) {
    if (bar > 0) return tree!.names[tree!.name[bar]];
    return tree!.diff ? 'total' : `total · ${value(tree!.total, unit())}`;
  },
  hover: (bar, x, y) => showTip(tree, bar, x, y),
  zoom: showCrumbs,
  opened: openOther,
});
const callersFlame = new Flame(el('callers'), {
  label: (bar) => callers?.names[callers.name[bar]] ?? '',
  hover: (bar, x, y) => showTip(callers, bar, x, y),
  zoom: () => {},
});
const table = new Table(
  el('table'),
  (name) => {
    if (adhocUnit === null) return look({ fn: name, how: 'sandwich' });
    search.value = name;
    showTab('flame');
    onSearch();
  },
  (by, text, most) => void fillTable(by, text, most),
);
const timeline = new TimelineView(
  el('timeline'),
  (from, until) => change({ last: 0, from, until, live: false }),
  (at) => notes.open(at),
);
const notes = new NotesView(
  el('notes'),
  (all) => timeline.mark(all),
  (message) => say(message, true),
  () => void load(),
);

const adhoc = new Adhoc({
  say,
  show(uploaded, itsUnit, folded) {
    adhocUnit = itsUnit;
    el('graph').hidden = !uploaded;
    callers = null;
    for (const id of ['callers-view', 'looked', 'whole', 'focus', 'sandwich', 'before-key']) el(id).hidden = true;
    if (!uploaded) return;
    el('tab-table').hidden = !!uploaded.diff;
    if (uploaded.diff) showTab('flame');
    el('download').hidden = !folded;
    el<HTMLAnchorElement>('download').href = folded;
    showTree(uploaded);
  },
});

/** Nothing is there to be chosen: how to begin, in place of empty graphs. */
function showEmpty(empty: boolean): void {
  document.body.classList.toggle('empty', empty);
  el('empty').hidden = !empty;
  if (!empty) return;
  const here = location.origin + location.pathname.replace(/\/[^/]*$/, '');
  el('empty-address').textContent = here;
  el('empty-push').textContent =
    `printf 'main;work 30\\nmain;idle 70\\n' | curl --data-binary @- '${here}/ingest?name=my.app.cpu'`;
  say('');
}

/** Columns of errors count from the beginning of the whole question; the page shows its labels only. */
function ofLabels(message: string): string {
  const found = /^400: query: selector: (.*) at column (\d+)/.exec(message);
  if (!found || !state.labels) return message;
  const before = new TextEncoder().encode(api.selector(state.type, state.service, '')).length - 1 + ', '.length;
  const column = Number(found[2]) - before;
  return `400: labels: ${found[1]} at column ${Math.max(column, 1)}; write for example version="v2", region=~"eu.*"`;
}

function say(text: string, bad = false): void {
  notice.hidden = !text;
  notice.textContent = text;
  notice.className = bad ? 'bad' : '';
}

function showTip(tree: Tree | null, bar: number, x: number, y: number): void {
  tip.hidden = bar < 0 || !tree;
  if (bar < 0 || !tree) return;
  const name = document.createElement('b');
  name.textContent = bar === 0 ? 'total' : tree.names[tree.name[bar]];
  const lines = tree.diff ? diffTip(tree, bar) : singleTip(tree, bar);
  tip.replaceChildren(name, document.createElement('br'), lines);
  const left = Math.min(x + 14, innerWidth - tip.offsetWidth - 8);
  tip.style.left = `${Math.max(4, left)}px`;
  tip.style.top = `${y + 18 + tip.offsetHeight > innerHeight ? y - tip.offsetHeight - 10 : y + 18}px`;
}

function diffTip(tree: Tree, bar: number): string {
  const { left, right, leftTotal, rightTotal } = tree.diff!;
  const by = changeOf(tree, bar);
  const before = `left ${value(left[bar], unit())} (${percent(left[bar], leftTotal)})`;
  const after = `right ${value(right[bar], unit())} (${percent(right[bar], rightTotal)})`;
  return `${before} · ${after} · ${by > 0 ? 'more' : by < 0 ? 'less' : 'the same'}`;
}

function singleTip(tree: Tree, bar: number): string {
  const total = `total ${value(tree.width[bar], unit())} (${percent(tree.width[bar], tree.total)})`;
  const self = `self ${value(tree.self[bar], unit())} (${percent(tree.self[bar], tree.total)})`;
  return `${total} · ${self}`;
}

function showCrumbs(bar: number): void {
  el<HTMLButtonElement>('reset').disabled = bar === 0;
  const crumbs = el('crumbs');
  crumbs.replaceChildren();
  const real = !!tree && bar > 0 && adhocUnit === null && !isCut(bar);
  for (const id of ['focus', 'sandwich']) el(id).hidden = !real;
  if (!tree || bar === 0) return;
  const at = path(tree, bar);
  const shown = at.length > 8 ? [at[0], ...at.slice(-7)] : at;
  shown.forEach((b, i) => {
    const a = document.createElement('button');
    a.type = 'button';
    a.className = 'link';
    a.textContent = b === 0 ? 'total' : tree!.names[tree!.name[b]];
    a.addEventListener('click', () => flame.zoom(b));
    if (i) crumbs.append(' › ');
    if (i === 1 && at.length > 8) crumbs.append('… › ');
    crumbs.append(a);
  });
}

/** A bar `other`: what was cut off below its parent. */
function isCut(bar: number): boolean {
  return !!tree && tree.names[tree.name[bar]] === 'other' && tree.self[bar] === tree.width[bar];
}

const namesTo = (bar: number) => path(tree!, bar).slice(1).map((b) => tree!.names[tree!.name[b]]);

/** A click on what was cut opens it: the sub-tree below its parent, which is cut less. */
function openOther(bar: number): boolean {
  if (adhocUnit !== null || state.fn || state.before || !isCut(bar)) return false;
  const at = namesTo(tree!.parent[bar]);
  if (!at.length || at.join('\n') === state.at.join('\n')) return false;
  look({ at });
  return true;
}

/** Another look at the same data; nothing given: the whole graph. */
function look(to: Partial<State>): void {
  showTab('flame');
  change({ fn: '', at: [], before: false, ...to });
}

function showLook(): void {
  const { fn, how, at } = state;
  const text = fn ? `${how === 'focus' ? 'Stacks with' : 'Sandwich of'} ${fn}` : `Below ${at[at.length - 1] ?? ''}`;
  el('looked').textContent = text;
  for (const id of ['looked', 'whole']) el(id).hidden = !fn && !at.length;
  el<HTMLInputElement>('before').checked = state.before;
  el('before-key').hidden = !state.before;
  el('callers-view').hidden = !callers || el('flame').hidden;
}

async function fillTable(by: By, text: string, most: number): Promise<void> {
  if (el('table').hidden || adhocUnit !== null || !asked) return;
  try {
    const { rows, total, matching } = await api.top(asked, by, text, most, state.fn, state.at);
    table.fill({ rows, total, matching }, by, text);
  } catch (e) {
    if (!asked.signal.aborted) say(e instanceof Error ? e.message : String(e), true);
  }
}

function showTab(which: 'flame' | 'table'): void {
  for (const name of ['flame', 'table']) {
    el(name).hidden = name !== which;
    el('tab-' + name).setAttribute('aria-selected', String(name === which));
  }
  el('callers-view').hidden = !callers || which !== 'flame';
  if (which === 'table') table.again();
}

function options(select: HTMLSelectElement, rows: [string, string][], chosen: string): void {
  const same =
    rows.length === select.options.length &&
    rows.every(([v, t], i) => select.options[i].value === v && select.options[i].text === t);
  if (!same) select.replaceChildren(...rows.map(([v, t]) => new Option(t, v)));
  select.value = chosen;
}

function showControls(): void {
  const services = known.map((k): [string, string] => [k.service, k.service || '(none)']);
  if (state.service && !known.some((k) => k.service === state.service))
    services.unshift([state.service, `${state.service} (no data)`]);
  options(service, services, state.service);
  const types = known.find((k) => k.service === state.service)?.types ?? [state.type].filter(Boolean);
  options(type, types.map((t) => [t, typeTitle(t)]), state.type);
  const ranges: [string, string][] = RANGES.map(([s, t]) => [String(s), t]);
  if (!state.last) {
    const [from, until] = [state.from, state.until].map((t) => new Date(t).toLocaleString());
    ranges.push(['0', `${from} – ${until}`]);
  }
  options(range, ranges, String(state.last));
  if (document.activeElement !== labels) labels.value = state.labels;
  live.checked = state.live;
  live.disabled = state.last === 0;
  document.title = state.service ? `${state.service} · Embertree` : 'Embertree';
}

/** Without a choice takes what is most worth looking at. A choice stays, even while it has no data:
 * a link means what it says. */
function settle(): void {
  if (!state.service) {
    const first = known.find((k) => k.service === 'embertree') ?? known[0];
    state.service = first?.service ?? '';
  }
  const types = known.find((k) => k.service === state.service)?.types ?? [];
  if (types.length ? !types.includes(state.type) : state.service && !state.type)
    state.type = types.find((t) => t.startsWith('process_cpu:cpu:')) ?? types[0] ?? CPU_TYPE;
}

function change(to: Partial<State>): void {
  state = { ...state, ...to };
  settle();
  history.replaceState(null, '', write(state));
  showControls();
  void load();
}

function showTree(of: Tree): void {
  tree = of;
  flame.set(of);
  table.set(functions(of), of.total, unit());
  const { leftTotal, rightTotal } = of.diff ?? { leftTotal: 0, rightTotal: 0 };
  const both = `left ${value(leftTotal, unit())}, right ${value(rightTotal, unit())}`;
  el('total').textContent = of.diff ? both : of.total ? `total ${value(of.total, unit())}` : '';
  if (search.value) onSearch();
}

/** The tree of the look that is chosen. */
async function lookAt(of: api.Asked, answer: api.Render): Promise<[Tree, Tree | null, boolean]> {
  if (state.fn && state.how === 'sandwich') {
    const s = await api.sandwich(of, state.fn);
    return [decode(s.callees), decode(s.callers), !!s.partial];
  }
  if (state.fn || state.at.length) {
    const f = await (state.fn ? api.focus(of, state.fn) : api.subtree(of, state.at));
    return [decode(f.flamebearer), null, !!f.partial];
  }
  if (state.before) {
    const d = await api.compared(of);
    answer.notice ||= d.notice; // the time before may have had more collectors
    return [decodeDiff(d.flamebearer, d.leftTicks, d.rightTicks), null, !!d.partial];
  }
  return [decode(answer.flamebearer), null, false];
}

function show(answer: api.Render, looked: Tree, above: Tree | null, partial: boolean): void {
  document.body.classList.remove('stale');
  callers = above;
  if (above) callersFlame.set(above);
  el('tab-table').hidden = !!looked.diff;
  if (looked.diff) showTab('flame');
  showTree((tree = looked));
  showLook();
  el('download').hidden = !tree.total;
  timeline.set(answer.timeline, unit());
  if (answer.partial || partial) say('Some servers did not answer: this is only a part of the data.', true);
  else if (answer.notice) say('Note: ' + answer.notice + '.');
  else if (tree.diff && !tree.diff.leftTotal && tree.diff.rightTotal)
    say('Nothing was measured in the time before: all of it is new.');
  else if (!tree.total) say('No data in this range. Choose a longer one, or other labels.');
  else say('');
}

async function load(): Promise<void> {
  clearTimeout(timer);
  asking?.abort();
  const mine = (asking = new AbortController());
  document.body.classList.add('loading');
  try {
    const [from, until] = bounds(state, Date.now());
    known = await api.services(from, until);
    if (mine.signal.aborted) return;
    settle();
    history.replaceState(null, '', write(state));
    showControls();
    showEmpty(!state.type);
    if (state.type) {
      const query = api.selector(state.type, state.service, state.labels);
      el<HTMLAnchorElement>('download').href = api.renderUrl(query, from, until, 'collapsed');
      const of = { query, from, until, signal: mine.signal };
      const plain = !state.fn && !state.at.length && !state.before;
      const answer = await api.render(query, from, until, mine.signal, plain ? 16384 : 1);
      const [looked, above, partial] = await lookAt(of, answer);
      const noted = await api.notes(state.service, from, until, mine.signal);
      if (mine.signal.aborted) return;
      asked = of;
      show(answer, looked, above, partial);
      notes.set(state.service, noted);
    }
  } catch (e) {
    if (!mine.signal.aborted) {
      document.body.classList.add('stale');
      say(ofLabels(e instanceof Error ? e.message : String(e)), true);
    }
  } finally {
    if (asking === mine) {
      document.body.classList.remove('loading');
      document.body.dataset.ready = '1';
      if (state.live && state.last) timer = window.setTimeout(() => void load(), LIVE_MS);
    }
  }
}

function onSearch(): void {
  const ticks = flame.search(search.value.trim());
  table.search(search.value.trim());
  el('found').textContent =
    search.value.trim() && tree ? `${percent(ticks, tree.total)} of the total` : '';
}

/** Shows what the address names: services, or uploaded profiles. */
function follow(): void {
  const uploaded = readAdhoc(location.hash) !== null;
  document.body.dataset.view = uploaded ? 'adhoc' : 'services';
  for (const view of ['services', 'adhoc'])
    el('view-' + view).setAttribute('aria-current', (view === 'adhoc') === uploaded ? 'page' : 'false');
  if (uploaded) {
    if (state.service) el<HTMLAnchorElement>('view-services').href = write(state);
    clearTimeout(timer);
    asking?.abort();
    void adhoc.open(location.hash);
    return;
  }
  if (adhocUnit !== null) {
    adhocUnit = null;
    for (const id of ['graph', 'tab-table', 'download']) el(id).hidden = false;
    showLook();
    el('adhoc-head').hidden = true;
    adhoc.leave();
  }
  change(read(location.hash));
}

service.addEventListener('change', () => change({ service: service.value, fn: '', at: [] }));
type.addEventListener('change', () => change({ type: type.value }));
labels.addEventListener('change', () => change({ labels: labels.value }));
range.addEventListener('change', () => {
  if (Number(range.value)) change({ last: Number(range.value), from: 0, until: 0 });
});
live.addEventListener('change', () => change({ live: live.checked }));
el('refresh').addEventListener('click', () => void load());
el('focus').addEventListener('click', () => look({ fn: namesTo(flame.at).pop() ?? '', how: 'focus' }));
el('sandwich').addEventListener('click', () => look({ fn: namesTo(flame.at).pop() ?? '', how: 'sandwich' }));
el('whole').addEventListener('click', () => look({}));
el('before').addEventListener('change', () => look({ before: el<HTMLInputElement>('before').checked }));
el('reset').addEventListener('click', () => flame.zoom(0));
el('tab-flame').addEventListener('click', () => showTab('flame'));
el('tab-table').addEventListener('click', () => showTab('table'));
search.addEventListener('input', onSearch);
addEventListener('hashchange', follow);
addEventListener('keydown', (e) => {
  if (e.target instanceof HTMLInputElement || e.ctrlKey || e.metaKey || e.altKey) return;
  if (e.key === '/') {
    e.preventDefault();
    search.focus();
  } else if (e.key === 'r') follow();
});
follow();
