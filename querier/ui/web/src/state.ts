/** What is being looked at, kept in the address so that a link shows the same page. */
export interface State {
  service: string;
  type: string;
  labels: string;
  /** Seconds back from now; 0 when from and until are fixed. */
  last: number;
  from: number;
  until: number;
  live: boolean;
  /** A function whose stacks are looked at, and how; empty: all stacks. */
  fn: string;
  how: 'focus' | 'sandwich';
  /** Path of the node that is opened; empty: the whole graph. */
  at: string[];
  /** Beside the same length of time directly before. */
  before: boolean;
}

export const RANGES: [number, string][] = [
  [60, 'Last minute'],
  [300, 'Last 5 minutes'],
  [900, 'Last 15 minutes'],
  [3600, 'Last hour'],
  [6 * 3600, 'Last 6 hours'],
  [86400, 'Last 24 hours'],
  [7 * 86400, 'Last 7 days'],
  [30 * 86400, 'Last 30 days'],
  [365 * 86400, 'Last year'],
];

export function read(hash: string): State {
  const p = new URLSearchParams(hash.replace(/^#/, ''));
  const number = (name: string) => {
    const n = Number(p.get(name));
    return Number.isFinite(n) && n > 0 ? n : 0;
  };
  const from = number('from');
  const until = number('until');
  const fixed = from > 0 && until > from;
  return {
    service: p.get('service') ?? '',
    type: p.get('type') ?? '',
    labels: p.get('labels') ?? '',
    last: fixed ? 0 : number('last') || 900,
    from: fixed ? from : 0,
    until: fixed ? until : 0,
    live: !fixed && p.get('live') !== '0',
    fn: p.get('fn') ?? '',
    how: p.get('how') === 'focus' ? 'focus' : 'sandwich',
    at: p.getAll('at'),
    before: p.get('before') === '1',
  };
}

export function write(s: State): string {
  const p = new URLSearchParams();
  if (s.service) p.set('service', s.service);
  if (s.type) p.set('type', s.type);
  if (s.labels) p.set('labels', s.labels);
  if (s.last) {
    p.set('last', String(s.last));
    if (!s.live) p.set('live', '0');
  } else {
    p.set('from', String(s.from));
    p.set('until', String(s.until));
  }
  if (s.fn) {
    p.set('fn', s.fn);
    p.set('how', s.how);
  } else if (s.at.length) s.at.forEach((name) => p.append('at', name));
  else if (s.before) p.set('before', '1');
  return '#' + p;
}

/** [from, until) in milliseconds. */
export function bounds(s: State, now: number): [number, number] {
  return s.last ? [now - s.last * 1000, now] : [s.from, s.until];
}

/** Uploaded profiles: `#adhoc=ID&with=ID2&type=cpu`; all empty: the list. */
export interface AdhocState {
  id: string;
  other: string;
  type: string;
}

/** null: the address is about services. */
export function readAdhoc(hash: string): AdhocState | null {
  const p = new URLSearchParams(hash.replace(/^#/, ''));
  if (!p.has('adhoc')) return null;
  return { id: p.get('adhoc') ?? '', other: p.get('with') ?? '', type: p.get('type') ?? '' };
}

export function writeAdhoc(s: AdhocState): string {
  const p = new URLSearchParams({ adhoc: s.id });
  if (s.other) p.set('with', s.other);
  if (s.type) p.set('type', s.type);
  return '#' + p;
}
