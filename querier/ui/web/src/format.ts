/** Values with their units, as people read them. */
const TIME: [number, string][] = [
  [86400, 'd'],
  [3600, 'h'],
  [60, 'min'],
  [1, 's'],
  [1e-3, 'ms'],
  [1e-6, 'µs'],
  [1e-9, 'ns'],
];
const BYTES: [number, string][] = [
  [2 ** 50, 'PiB'],
  [2 ** 40, 'TiB'],
  [2 ** 30, 'GiB'],
  [2 ** 20, 'MiB'],
  [2 ** 10, 'KiB'],
  [1, 'B'],
];
const COUNT: [number, string][] = [
  [1e12, 'T'],
  [1e9, 'G'],
  [1e6, 'M'],
  [1e3, 'k'],
  [1, ''],
];

function scaled(v: number, steps: [number, string][]): string {
  if (v === 0) return '0';
  const [factor, unit] = steps.find(([f]) => Math.abs(v) >= f) ?? steps[steps.length - 1];
  const n = v / factor;
  const text = Math.abs(n) >= 100 || Number.isInteger(n) ? n.toFixed(0) : n.toPrecision(3);
  return unit ? `${text} ${unit}` : text;
}

/** Seconds per unit of time, or 0 for anything that is no time. */
const SECONDS: Record<string, number> = {
  nanoseconds: 1e-9,
  microseconds: 1e-6,
  milliseconds: 1e-3,
  seconds: 1,
};

export function value(v: number, unit: string): string {
  if (SECONDS[unit]) return scaled(v * SECONDS[unit], TIME);
  if (unit === 'bytes') return scaled(v, BYTES);
  return scaled(v, COUNT);
}

export function bytes(v: number): string {
  return scaled(v, BYTES);
}

export function percent(part: number, whole: number): string {
  if (whole <= 0) return '0 %';
  const p = (100 * part) / whole;
  return `${p >= 99.95 || p === 0 ? p.toFixed(0) : p >= 10 ? p.toFixed(1) : p.toFixed(2)} %`;
}

/** `process_cpu:cpu:nanoseconds:cpu:nanoseconds` as `cpu (process_cpu)`. */
export function typeTitle(id: string): string {
  const [name, sample] = id.split(':');
  return sample && sample !== name ? `${sample} · ${name}` : name;
}

export function typeUnit(id: string): string {
  return id.split(':')[2] ?? '';
}
