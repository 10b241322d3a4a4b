/**
 * The flamebearer encoding as flat arrays, and the questions the page asks of it.
 *
 * A bar is four numbers: x relative to the end of the previous bar of its level, total, self, name.
 * A bar's own self stands at its left edge, its children behind it.
 */
export interface Flamebearer {
  names: string[];
  levels: number[][];
  numTicks: number;
  maxSelf: number;
}

/** Bars in order of level, then x. The parent of a bar stands before it. */
export interface Tree {
  names: string[];
  total: number;
  depth: number;
  /** First bar of each level; one more entry at the end. */
  start: Int32Array;
  x: Float64Array;
  width: Float64Array;
  self: Float64Array;
  name: Int32Array;
  parent: Int32Array;
  /** Of a comparison: totals of each side; width and self are their sums. */
  diff?: { left: Float64Array; right: Float64Array; leftTotal: number; rightTotal: number };
}

function emptyTree(f: Flamebearer, numbers: number): Tree {
  const count = f.levels.reduce((n, level) => n + Math.floor(level.length / numbers), 0);
  return {
    names: f.names,
    total: f.numTicks,
    depth: f.levels.length,
    start: new Int32Array(f.levels.length + 1),
    x: new Float64Array(count),
    width: new Float64Array(count),
    self: new Float64Array(count),
    name: new Int32Array(count),
    parent: new Int32Array(count).fill(-1),
  };
}

/** Bars of a level come from left to right, and so do their parents. */
function findParents(t: Tree): void {
  for (let d = 1; d < t.depth; d++) {
    let p = t.start[d - 1];
    for (let i = t.start[d]; i < t.start[d + 1]; i++) {
      while (p + 1 < t.start[d] && t.x[p] + t.width[p] <= t.x[i]) p++;
      t.parent[i] = p;
    }
  }
}

export function decode(f: Flamebearer): Tree {
  const t = emptyTree(f, 4);
  let i = 0;
  f.levels.forEach((level, d) => {
    let x = 0;
    t.start[d] = i;
    for (let k = 0; k + 3 < level.length; k += 4, i++) {
      x += level[k];
      t.x[i] = x;
      t.width[i] = level[k + 1];
      t.self[i] = level[k + 2];
      t.name[i] = level[k + 3];
      x += level[k + 1];
    }
  });
  t.start[f.levels.length] = i;
  findParents(t);
  return t;
}

/** Seven numbers a bar: x, total, self of each side, name. A bar is as wide as both together. */
export function decodeDiff(f: Flamebearer, leftTotal: number, rightTotal: number): Tree {
  const t = emptyTree(f, 7);
  const left = new Float64Array(t.x.length);
  const right = new Float64Array(t.x.length);
  let i = 0;
  f.levels.forEach((level, d) => {
    let x = 0;
    t.start[d] = i;
    for (let k = 0; k + 6 < level.length; k += 7, i++) {
      x += level[k] + level[k + 3];
      left[i] = level[k + 1];
      right[i] = level[k + 4];
      t.x[i] = x;
      t.width[i] = left[i] + right[i];
      t.self[i] = level[k + 2] + level[k + 5];
      t.name[i] = level[k + 6];
      x += t.width[i];
    }
  });
  t.start[f.levels.length] = i;
  findParents(t);
  t.diff = { left, right, leftTotal, rightTotal };
  return t;
}

/** How a bar's share of its side changed: -1 (gone) .. 0 .. 1 (new). */
export function change(t: Tree, bar: number): number {
  if (!t.diff) return 0;
  const l = t.diff.leftTotal ? t.diff.left[bar] / t.diff.leftTotal : 0;
  const r = t.diff.rightTotal ? t.diff.right[bar] / t.diff.rightTotal : 0;
  return l || r ? (r - l) / Math.max(l, r) : 0;
}

export function levelOf(t: Tree, bar: number): number {
  let d = 0;
  while (d + 1 < t.depth && t.start[d + 1] <= bar) d++;
  return d;
}

/** Root first, the bar itself last. */
export function path(t: Tree, bar: number): number[] {
  const out: number[] = [];
  for (let b = bar; b >= 0; b = t.parent[b]) out.unshift(b);
  return out;
}

/** The bar of level d that covers x, or -1. */
export function barAt(t: Tree, d: number, x: number): number {
  if (d < 0 || d >= t.depth) return -1;
  let lo = t.start[d];
  let hi = t.start[d + 1] - 1;
  while (lo < hi) {
    const mid = (lo + hi + 1) >> 1;
    if (t.x[mid] <= x) lo = mid;
    else hi = mid - 1;
  }
  return lo < t.start[d + 1] && t.x[lo] <= x && x < t.x[lo] + t.width[lo] ? lo : -1;
}

export interface Row {
  name: string;
  self: number;
  total: number;
}

/** Self and total of each function; a function that recurs counts once per stack. */
export function functions(t: Tree): Row[] {
  const self = new Float64Array(t.names.length);
  const total = new Float64Array(t.names.length);
  for (let i = t.start[Math.min(1, t.depth)]; i < t.x.length; i++) {
    const n = t.name[i];
    self[n] += t.self[i];
    let above = t.parent[i];
    while (above > 0 && t.name[above] !== n) above = t.parent[above];
    if (above <= 0) total[n] += t.width[i];
  }
  const rows: Row[] = [];
  t.names.forEach((name, n) => {
    if (self[n] > 0 || total[n] > 0) rows.push({ name, self: self[n], total: total[n] });
  });
  return rows.sort((a, b) => b.self - a.self || b.total - a.total || (a.name < b.name ? -1 : 1));
}

/** Ticks under bars whose name matches, nested matches counted once. */
export function matched(t: Tree, hit: (name: number) => boolean): number {
  const inside = new Uint8Array(t.x.length);
  let sum = 0;
  for (let i = 0; i < t.x.length; i++) {
    const p = t.parent[i];
    if (p >= 0 && inside[p]) inside[i] = 1;
    else if (i > 0 && hit(t.name[i])) {
      inside[i] = 1;
      sum += t.width[i];
    }
  }
  return sum;
}
