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
}
export interface ServiceTypes {
  service: string;
  types: string[];
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

export function renderUrl(query: string, from: number, until: number, format: string): string {
  const p = new URLSearchParams({ query, from: String(from), until: String(until), format });
  if (format === 'json') p.set('max-nodes', '16384');
  return `${format === 'json' ? './pyroscope/render' : './render'}?${p}`;
}

export async function render(
  query: string,
  from: number,
  until: number,
  signal: AbortSignal,
): Promise<Render> {
  return answer<Render>(await fetch(renderUrl(query, from, until, 'json'), { signal }));
}
