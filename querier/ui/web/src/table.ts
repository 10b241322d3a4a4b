/**
 * Functions by self and total, in a table that sorts by a click on its heads. Rows of the graph that is
 * shown stand there at once; where a server can tell those of the whole profile, they follow.
 */
import { percent, value } from './format';
import type { Row } from './tree';

const MOST = 500;

export type By = 'self' | 'total' | 'name';
export interface Exact {
  rows: Row[];
  total: number;
  matching: number;
}

export class Table {
  private rows: Row[] = [];
  private by: By = 'self';
  private exact: Exact | null = null;
  private total = 0;
  private unit = '';
  private want = '';

  constructor(
    private host: HTMLElement,
    private picked: (name: string) => void,
    private asked: (by: By, search: string, most: number) => void,
  ) {}

  set(rows: Row[], total: number, unit: string): void {
    this.rows = rows;
    this.total = total;
    this.unit = unit;
    this.again();
  }

  /** The largest rows as the server knows them, for the order and search that were asked for. */
  fill(exact: Exact, by: By, search: string): void {
    if (by !== this.by || search !== this.want) return;
    this.exact = exact;
    this.draw();
  }

  search(text: string): void {
    this.want = text.toLowerCase();
    this.again();
  }

  /** Draws the rows at hand and asks for exact ones. */
  again(): void {
    this.exact = null;
    this.draw();
    this.asked(this.by, this.want, MOST);
  }

  private draw(): void {
    const by = this.by;
    const rows =
      this.exact?.rows ??
      this.rows
        .filter((r) => !this.want || r.name.toLowerCase().includes(this.want))
        .sort((a, b) => (by === 'name' ? (a.name < b.name ? -1 : 1) : b[by] - a[by]));
    const all = this.exact?.matching ?? rows.length;
    const table = document.createElement('table');
    const head = table.createTHead().insertRow();
    for (const [key, title] of [['name', 'Function'], ['self', 'Self'], ['total', 'Total']] as const) {
      const th = document.createElement('th');
      const button = document.createElement('button');
      button.type = 'button';
      button.textContent = title + (by === key ? ' ▾' : '');
      button.addEventListener('click', () => {
        this.by = key;
        this.again();
      });
      th.append(button);
      head.append(th);
    }
    const body = table.createTBody();
    for (const r of rows.slice(0, MOST)) this.drawRow(body.insertRow(), r);
    this.host.replaceChildren(table);
    if (all > MOST) {
      const more = document.createElement('p');
      more.className = 'dim';
      more.textContent = `${all - MOST} more functions are not shown: search for them.`;
      this.host.append(more);
    }
  }

  private drawRow(tr: HTMLTableRowElement, r: Row): void {
    const name = document.createElement('button');
    name.type = 'button';
    name.className = 'link';
    name.textContent = r.name;
    name.addEventListener('click', () => this.picked(r.name));
    tr.insertCell().append(name);
    for (const v of [r.self, r.total]) {
      const cell = tr.insertCell();
      const total = this.exact?.total ?? this.total;
      cell.textContent = `${value(v, this.unit)}  ${percent(v, total)}`;
      cell.style.setProperty('--share', `${total ? (100 * v) / total : 0}%`);
    }
  }
}
