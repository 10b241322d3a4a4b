/** The timeline above the flame graph; dragging over it chooses a range. */
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import type { Timeline } from './api';
import { value } from './format';

export class TimelineView {
  private plot: uPlot | null = null;
  private unit = '';
  private span: [number, number] = [0, 1];

  constructor(
    private host: HTMLElement,
    private chosen: (from: number, until: number) => void,
  ) {
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.plot?.redraw(false, true));
    new ResizeObserver(() => this.plot?.setSize({ width: host.clientWidth, height: 132 })).observe(host);
  }

  set(t: Timeline | null, unit: string): void {
    this.unit = unit;
    // No bar where nothing was measured: a line along zero would say that something was.
    const samples = (t?.samples ?? []).map((v) => v || null);
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

  private options(): uPlot.Options {
    const ink = () => getComputedStyle(this.host).color; // of the scheme at the time it draws
    const grid = { stroke: 'rgba(128,128,128,0.18)', width: 1 };
    return {
      width: this.host.clientWidth,
      height: 132,
      legend: { show: false },
      scales: { x: { range: () => this.span }, y: { range: (_u, _min, max) => [0, (max || 1) * 1.08] } },
      cursor: { y: false, drag: { x: true, y: false, setScale: false } },
      axes: [
        { stroke: ink, grid, ticks: grid },
        { stroke: ink, grid, ticks: grid, size: 76, values: (_u, vs) => vs.map((v) => value(v, this.unit)) },
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
