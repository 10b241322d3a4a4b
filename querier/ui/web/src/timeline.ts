/** The timeline above the flame graph; dragging over it chooses a range, a click a time. */
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import type { Note, Timeline } from './api';
import { value } from './format';

export class TimelineView {
  private plot: uPlot | null = null;
  private unit = '';
  private something = false;
  private span: [number, number] = [0, 1];
  private notes: Note[] = [];

  constructor(
    private host: HTMLElement,
    private chosen: (from: number, until: number) => void,
    private clicked: (at: number) => void,
  ) {
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.plot?.redraw(false, true));
    new ResizeObserver(() => this.plot?.setSize({ width: this.inner(), height: 132 })).observe(host);
  }

  set(t: Timeline | null, unit: string): void {
    this.unit = unit;
    // No bar where nothing was measured: a line along zero would say that something was.
    const samples = (t?.samples ?? []).map((v) => v || null);
    this.something = samples.some((v) => v !== null);
    const xs = samples.map((_, i) => (t ? t.startTime + i * t.durationDelta : 0));
    if (t && xs.length) this.span = [xs[0], xs[xs.length - 1] + t.durationDelta];
    const data: uPlot.AlignedData = [xs, samples];
    if (this.plot) {
      this.plot.setData(data);
      this.plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
      return;
    }
    this.plot = new uPlot(this.options(), data, this.host);
  }

  /** Notes stand as lines over the bars. */
  mark(notes: Note[]): void {
    this.notes = notes;
    this.host.dataset.notes = String(notes.length);
    this.plot?.redraw(false);
  }

  /** clientWidth counts the padding. */
  private inner(): number {
    const s = getComputedStyle(this.host);
    return Math.max(0, this.host.clientWidth - parseFloat(s.paddingLeft) - parseFloat(s.paddingRight));
  }

  /** Where nothing was measured there is no scale, either. */
  private amount(v: number): string {
    return this.something ? value(v, this.unit) : '';
  }

  private drawNotes(u: uPlot): void {
    u.ctx.save();
    u.ctx.strokeStyle = '#1971c2';
    u.ctx.lineWidth = 2 * devicePixelRatio;
    for (const n of this.notes) {
      const x = Math.round(u.valToPos(n.timestampMs / 1000, 'x', true));
      if (x < u.bbox.left || x > u.bbox.left + u.bbox.width) continue;
      u.ctx.beginPath();
      u.ctx.moveTo(x, u.bbox.top);
      u.ctx.lineTo(x, u.bbox.top + u.bbox.height);
      u.ctx.stroke();
    }
    u.ctx.restore();
  }

  private options(): uPlot.Options {
    const ink = () => getComputedStyle(this.host).color; // of the scheme at the time it draws
    const grid = { stroke: 'rgba(128,128,128,0.18)', width: 1 };
    return {
      width: this.inner(),
      height: 132,
      padding: [null, 24, null, null], // half of the last time below the axis
      legend: { show: false },
      scales: { x: { range: () => this.span }, y: { range: (_u, _min, max) => [0, (max || 1) * 1.08] } },
      cursor: { y: false, drag: { x: true, y: false, setScale: false } },
      axes: [
        { stroke: ink, grid, ticks: grid },
        { stroke: ink, grid, ticks: grid, size: 76, values: (_u, vs) => vs.map((v) => this.amount(v)) },
      ],
      series: [
        {},
        {
          stroke: '#f76707',
          fill: 'rgba(247,103,7,0.28)',
          width: 1.5,
          paths: uPlot.paths.bars!({ size: [0.92], align: 1 }),
          points: { show: false },
        },
      ],
      hooks: {
        draw: [(u) => this.drawNotes(u)],
        ready: [
          (u) => {
            let down = -1;
            u.over.addEventListener('mousedown', (e) => (down = e.clientX));
            u.over.addEventListener('mouseup', (e) => {
              if (Math.abs(e.clientX - down) < 4) this.clicked(u.posToVal(u.cursor.left ?? 0, 'x') * 1000);
            });
          },
        ],
        setSelect: [
          (u) => {
            if (u.select.width < 4) return;
            const from = u.posToVal(u.select.left, 'x') * 1000;
            const until = u.posToVal(u.select.left + u.select.width, 'x') * 1000;
            this.chosen(Math.floor(from), Math.ceil(until));
          },
        ],
      },
    };
  }
}
