/**
 * The flame graph on a canvas: root on top, one row a level. Only bars that are wider than a third
 * of a pixel and inside the window are drawn, so cost follows the screen, not the tree.
 */
import { barAt, change, levelOf, matched, path, type Tree } from './tree';

const ROW = 20;
const LEAST_PX = 0.35;

export interface FlameEvents {
  hover(bar: number, clientX: number, clientY: number): void;
  zoom(bar: number): void;
  label(bar: number): string;
  /** True: a click on it did something else than to zoom. */
  opened?(bar: number): boolean;
}

/** One warm hue per package, so that neighbours of one library look alike. */
function colour(name: string, dark: boolean): string {
  const cut = Math.max(name.lastIndexOf('/'), name.indexOf('.'), name.indexOf('::'), name.indexOf(' '));
  const family = cut > 0 ? name.slice(0, cut) : name;
  let h = 2166136261;
  for (let i = 0; i < family.length; i++) h = Math.imul(h ^ family.charCodeAt(i), 16777619);
  h >>>= 0;
  const hue = 8 + (h % 46);
  const light = (dark ? 40 : 62) + ((h >>> 8) % 12);
  return `hsl(${hue} ${62 + ((h >>> 16) % 22)}% ${light}%)`;
}

/** Red where more of the time goes than before, green where less, grey where nothing changed. */
function changeColour(by: number, dark: boolean): string {
  const strength = Math.min(1, Math.abs(by) * 1.5);
  return `hsl(${by > 0 ? 8 : 145} ${Math.round(strength * 70)}% ${(dark ? 62 : 78) - Math.round(strength * 12)}%)`;
}

export class Flame {
  private canvas = document.createElement('canvas');
  private tree: Tree | null = null;
  private colours: string[] = [];
  private dark = false;
  private hits: Uint8Array | null = null;
  private zoomed = 0;
  private hovered = -1;
  private frame = 0;

  constructor(
    private host: HTMLElement,
    private events: FlameEvents,
  ) {
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute('role', 'img');
    host.append(this.canvas);
    this.canvas.addEventListener('mousemove', (e) => this.onMove(e));
    this.canvas.addEventListener('mouseleave', () => this.setHover(-1, 0, 0));
    this.canvas.addEventListener('click', (e) => this.onClick(e));
    this.canvas.addEventListener('keydown', (e) => this.onKey(e));
    new ResizeObserver(() => this.draw()).observe(host);
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.recolour());
  }

  /** Keeps the zoom where a bar with the same path still exists. */
  set(tree: Tree): void {
    const names = this.tree ? path(this.tree, this.zoomed).map((b) => this.tree!.names[this.tree!.name[b]]) : [];
    this.tree = tree;
    this.hovered = -1;
    this.zoomed = names.length > 1 ? this.follow(names) : 0;
    this.recolour();
    this.canvas.setAttribute('aria-label', `Flame graph of ${tree.x.length} functions in ${tree.depth} levels`);
    this.events.zoom(this.zoomed);
  }

  search(text: string): number {
    if (!this.tree || !text) {
      this.hits = null;
      this.draw();
      return 0;
    }
    const want = text.toLowerCase();
    this.hits = Uint8Array.from(this.tree.names, (n) => (n.toLowerCase().includes(want) ? 1 : 0));
    const hits = this.hits;
    this.draw();
    return matched(this.tree, (n) => hits[n] === 1);
  }

  /** The bar that is zoomed. */
  get at(): number {
    return this.zoomed;
  }

  zoom(bar: number): void {
    if (!this.tree || bar < 0 || bar >= this.tree.x.length) return;
    this.zoomed = bar;
    this.events.zoom(bar);
    this.draw();
  }

  private follow(names: string[]): number {
    const t = this.tree!;
    let at = 0;
    for (let d = 1; d < names.length && d < t.depth; d++) {
      let next = -1;
      for (let i = t.start[d]; i < t.start[d + 1]; i++)
        if (t.parent[i] === at && t.names[t.name[i]] === names[d]) next = i;
      if (next < 0) return at;
      at = next;
    }
    return at;
  }

  private recolour(): void {
    this.dark = matchMedia('(prefers-color-scheme: dark)').matches;
    this.colours = (this.tree?.names ?? []).map((n) => colour(n, this.dark));
    this.draw();
  }

  private draw(): void {
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => this.paint());
  }

  private paint(): void {
    const t = this.tree;
    if (!t) return;
    const ratio = window.devicePixelRatio || 1;
    const width = this.host.clientWidth;
    const height = Math.max(1, t.depth) * ROW;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    const c = this.canvas.getContext('2d');
    if (!c || !t.x.length) return;
    c.scale(ratio, ratio);
    c.clearRect(0, 0, width, height);
    c.font = '12px ui-sans-serif, system-ui, sans-serif';
    c.textBaseline = 'middle';
    const zoomLevel = levelOf(t, this.zoomed);
    const up = new Set(path(t, this.zoomed));
    for (let d = 0; d < t.depth; d++) this.paintLevel(c, d, width, d <= zoomLevel ? up : null);
  }

  private paintLevel(c: CanvasRenderingContext2D, d: number, width: number, only: Set<number> | null): void {
    const t = this.tree!;
    const x0 = t.x[this.zoomed];
    const span = t.width[this.zoomed] || 1;
    const scale = width / span;
    for (let i = t.start[d]; i < t.start[d + 1]; i++) {
      if (only && !only.has(i)) continue;
      if (!only && (t.x[i] + t.width[i] <= x0 || t.x[i] >= x0 + span)) continue;
      const left = only ? 0 : (t.x[i] - x0) * scale;
      const w = only ? width : t.width[i] * scale;
      if (w < LEAST_PX) continue;
      this.paintBar(c, i, left, d * ROW, w, only !== null && i !== this.zoomed);
    }
  }

  private paintBar(c: CanvasRenderingContext2D, i: number, x: number, y: number, w: number, faded: boolean): void {
    const t = this.tree!;
    const miss = this.hits && !this.hits[t.name[i]];
    c.globalAlpha = faded ? 0.5 : 1;
    c.fillStyle = miss ? 'rgba(128,128,128,0.25)' : i === 0 ? 'rgba(128,128,128,0.35)' : this.colourOf(i);
    c.fillRect(x, y, Math.max(w - (w > 3 ? 1 : 0), 0.5), ROW - 1);
    if (i === this.hovered) {
      c.fillStyle = 'rgba(255,255,255,0.3)';
      c.fillRect(x, y, w, ROW - 1);
    }
    if (w > 24) {
      c.save();
      c.beginPath();
      c.rect(x, y, w - 4, ROW);
      c.clip();
      c.fillStyle = miss ? 'rgba(128,128,128,0.9)' : i === 0 || (faded && this.dark) ? getComputedStyle(this.host).color : '#1b1206';
      c.fillText(this.events.label(i), x + 4, y + ROW / 2);
      c.restore();
    }
    c.globalAlpha = 1;
  }

  private colourOf(i: number): string {
    const t = this.tree!;
    return t.diff ? changeColour(change(t, i), this.dark) : this.colours[t.name[i]];
  }

  private locate(e: MouseEvent): number {
    const t = this.tree;
    if (!t || !t.x.length) return -1;
    const box = this.canvas.getBoundingClientRect();
    const d = Math.floor((e.clientY - box.top) / ROW);
    const up = path(t, this.zoomed);
    if (d < up.length) return d >= 0 ? up[d] : -1;
    const x = t.x[this.zoomed] + ((e.clientX - box.left) / box.width) * t.width[this.zoomed];
    return barAt(t, d, x);
  }

  private setHover(bar: number, x: number, y: number): void {
    if (bar !== this.hovered) {
      this.hovered = bar;
      this.draw();
    }
    this.events.hover(bar, x, y);
  }

  private onMove(e: MouseEvent): void {
    const bar = this.locate(e);
    this.canvas.style.cursor = bar >= 0 ? 'pointer' : 'default';
    this.setHover(bar, e.clientX, e.clientY);
  }

  private onClick(e: MouseEvent): void {
    const bar = this.locate(e);
    if (bar >= 0 && !this.events.opened?.(bar)) this.zoom(bar);
  }

  private onKey(e: KeyboardEvent): void {
    const t = this.tree;
    if (!t || !t.x.length) return;
    const d = levelOf(t, this.zoomed);
    if (e.key === 'Escape') this.zoom(0);
    else if (e.key === 'ArrowUp') this.zoom(Math.max(t.parent[this.zoomed], 0));
    else if (e.key === 'ArrowDown') {
      let widest = -1;
      for (let i = t.start[d + 1]; d + 1 < t.depth && i < t.start[d + 2]; i++)
        if (t.parent[i] === this.zoomed && (widest < 0 || t.width[i] > t.width[widest])) widest = i;
      this.zoom(widest);
    } else if (e.key === 'ArrowLeft' || e.key === 'ArrowRight') {
      const next = this.zoomed + (e.key === 'ArrowLeft' ? -1 : 1);
      if (next >= t.start[d] && next < t.start[d + 1]) this.zoom(next);
    } else return;
    e.preventDefault();
  }
}
