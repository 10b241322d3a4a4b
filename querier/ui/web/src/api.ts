/** What the page asks of the querier. Same origin only. */
import type { Flamebearer } from './tree';

export interface Timeline {
  startTime: number;
  samples: number[];
  durationDelta: number;
}
export interface Render {
  flamebearer: Flamebearer;
  timeline: Timeline | null;
  metadata: { units: string; name: string; sampleRate: number };
  partial?: boolean;
  notice?: string;
}
export interface ServiceTypes {
  service: string;
  types: string[];
}

export interface Note {
  id: string;
  content: string;
  timestampMs: number;
}

const RPC = './querier.v1.QuerierService/';

async function answer<T>(r: Response): Promise<T> {
  if (r.ok) return (await r.json()) as T;
  const text = await r.text();
  let message = text;
  try {
    message = (JSON.parse(text) as { message?: string }).message ?? text;
  } catch {
    // not JSON: a proxy in between; show what it said
  }
  throw new Error(`${r.status}: ${message || r.statusText}`);
}

/** Notes of a service in a range of ms; none where the server keeps none for this request. */
export async function notes(service: string, from: number, until: number, signal: AbortSignal): Promise<Note[]> {
  const query = new URLSearchParams({ service, from: String(from), until: String(until) });
  const r = await fetch(`./api/annotations?${query}`, { signal });
  return r.ok ? ((await r.json()) as Note[]) : [];
}

export async function annotate(service: string, at: number, content: string): Promise<void> {
  await answer(
    await fetch('./api/annotations', {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify({ appNames: [service], timestamp: at, content }),
    }),
  );
}

export async function dropNote(id: string): Promise<void> {
  await answer(await fetch(`./api/annotations?id=${encodeURIComponent(id)}`, { method: 'DELETE' }));
}

export async function services(from: number, until: number): Promise<ServiceTypes[]> {
  const r = await fetch(RPC + 'Series', {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({
      start: String(from),
      end: String(until),
      labelNames: ['service_name', '__profile_type__'],
      matchers: [],
    }),
  });
  interface Answer {
    labelsSet?: { labels?: { name: string; value: string }[] }[];
  }
  const found = new Map<string, Set<string>>();
  for (const set of (await answer<Answer>(r)).labelsSet ?? []) {
    const get = (name: string) => set.labels?.find((l) => l.name === name)?.value ?? '';
    const service = get('service_name');
    if (!found.has(service)) found.set(service, new Set());
    found.get(service)!.add(get('__profile_type__'));
  }
  return [...found]
    .map(([service, types]) => ({ service, types: [...types].sort() }))
    .sort((a, b) => (a.service < b.service ? -1 : 1));
}

export function selector(type: string, service: string, labels: string): string {
  const quoted = `service_name=${JSON.stringify(service)}`;
  const more = labels.trim().replace(/^\{|\}$/g, '').trim();
  return `${type}{${quoted}${more ? ', ' + more : ''}}`;
}

export function renderUrl(query: string, from: number, until: number, format: string, nodes = 16384): string {
  const p = new URLSearchParams({ query, from: String(from), until: String(until), format });
  if (format === 'json') p.set('max-nodes', String(nodes));
  return `${format === 'json' ? './pyroscope/render' : './render'}?${p}`;
}

export async function render(
  query: string,
  from: number,
  until: number,
  signal: AbortSignal,
  nodes: number,
): Promise<Render> {
  return answer<Render>(await fetch(renderUrl(query, from, until, 'json', nodes), { signal }));
}

/** What is asked of the exact views (querier/README.md). */
export interface Asked {
  query: string;
  from: number;
  until: number;
  signal: AbortSignal;
}

async function view<T>(
  route: string,
  of: Asked,
  more: Record<string, string>,
  many: [string, string[]] = ['', []],
): Promise<T> {
  const p = new URLSearchParams({ query: of.query, from: String(of.from), until: String(of.until), ...more });
  for (const value of many[1]) p.append(many[0], value);
  return answer<T>(await fetch(`./api/v1/${route}?${p}`, { signal: of.signal }));
}

export interface Top {
  total: number;
  matching: number;
  rows: { name: string; self: number; total: number }[];
}
/** Of stacks that contain a function, or begin with a path, if they are not empty. */
export const top = (of: Asked, sort: string, search: string, limit: number, fn: string, at: string[]) =>
  view<Top>('top', of, { sort, search, limit: String(limit), function: fn }, ['callSite', at]);

export interface Focus {
  flamebearer: Flamebearer;
  partial?: boolean;
}
export const focus = (of: Asked, name: string) =>
  view<Focus>('focus', of, { function: name, maxNodes: '16384' });
export const subtree = (of: Asked, path: string[]) =>
  view<Focus>('subtree', of, { limit: '0', tree: '1', maxNodes: '16384' }, ['path', path]);

export interface Sandwich {
  function: { self: number; total: number; totalPercent: number };
  callers: Flamebearer;
  callees: Flamebearer;
  partial?: boolean;
}
export const sandwich = (of: Asked, name: string) =>
  view<Sandwich>('sandwich', of, { function: name, maxNodes: '8192' });

export interface Compared {
  flamebearer: Flamebearer;
  leftTicks: number;
  rightTicks: number;
  partial?: boolean;
  notice?: string;
}
/** With the time directly before, which is as long. */
export const compared = (of: Asked) =>
  view<Compared>('diff', { ...of }, {
    rightFrom: String(of.from),
    rightUntil: String(of.until),
    limit: '0',
    tree: '1',
    maxNodes: '16384',
  });

export interface AdhocType {
  type: string;
  id: string;
  total: number;
}
export interface AdhocProfile {
  id: string;
  name: string;
  uploadedAt: number;
  format: string;
  size: number;
  bytes: number;
  types: AdhocType[];
}
export interface AdhocList {
  profiles: AdhocProfile[];
  max: number;
  bytesMax: number;
}
export interface AdhocView {
  flamebearer: Flamebearer;
  profileType: string;
  adhoc: AdhocProfile;
  adhocRight?: AdhocProfile;
  leftTicks?: number;
  rightTicks?: number;
}
const ADHOC = './api/v1/adhoc';

export async function adhocList(): Promise<AdhocList> {
  return answer<AdhocList>(await fetch(ADHOC));
}

export async function adhocGet(id: string, other: string, type: string): Promise<AdhocView> {
  const p = new URLSearchParams({ 'max-nodes': '16384' });
  if (type) p.set('type', type);
  const path = encodeURIComponent(id) + (other ? '/diff/' + encodeURIComponent(other) : '');
  return answer<AdhocView>(await fetch(`${ADHOC}/${path}?${p}`));
}

export function adhocFolded(id: string, type: string): string {
  return `${ADHOC}/${encodeURIComponent(id)}?${new URLSearchParams({ type, format: 'collapsed' })}`;
}

export async function adhocDelete(id: string): Promise<void> {
  await answer(await fetch(`${ADHOC}/${encodeURIComponent(id)}`, { method: 'DELETE' }));
}

/** fetch does not tell how much was sent. */
export function adhocUpload(file: File, progress: (share: number) => void): Promise<AdhocProfile> {
  return new Promise((resolve, reject) => {
    const x = new XMLHttpRequest();
    x.open('POST', `${ADHOC}?${new URLSearchParams({ name: file.name })}`);
    x.setRequestHeader('Content-Type', 'application/octet-stream');
    x.upload.addEventListener('progress', (e) => e.lengthComputable && progress(e.loaded / e.total));
    x.addEventListener('error', () => reject(new Error('the server cannot be reached')));
    x.addEventListener('load', () => {
      answer<AdhocProfile>(new Response(x.responseText, { status: x.status })).then(resolve, reject);
    });
    x.send(file);
  });
}
