/** Functions by self and total, in a table that sorts by a click on its heads. */
import { percent, value } from './format';
import type { Row } from './tree';

const MOST = 500;

export class Table {
  private rows: Row[] = [];
  private by: 'self' | 'total' | 'name' = 'self';
  private total = 0;
  private unit = '';
  private want = '';

  constructor(
    private host: HTMLElement,
    private picked: (name: string) => void,
  ) {}

  set(rows: Row[], total: number, unit: string): void {
    this.rows = rows;
    this.total = total;
    this.unit = unit;
    this.draw();
  }

  search(text: string): void {
    this.want = text.toLowerCase();
    this.draw();
  }

  private draw(): void {
    const by = this.by;
    const rows = this.rows
      .filter((r) => !this.want || r.name.toLowerCase().includes(this.want))
      .sort((a, b) => (by === 'name' ? (a.name < b.name ? -1 : 1) : b[by] - a[by]));
    const table = document.createElement('table');
    const head = table.createTHead().insertRow();
    for (const [key, title] of [['name', 'Function'], ['self', 'Self'], ['total', 'Total']] as const) {
      const th = document.createElement('th');
      const button = document.createElement('button');
      button.type = 'button';
      button.textContent = title + (by === key ? ' ▾' : '');
      button.addEventListener('click', () => {
        this.by = key;
        this.draw();
      });
      th.append(button);
      head.append(th);
    }
    const body = table.createTBody();
    for (const r of rows.slice(0, MOST)) this.drawRow(body.insertRow(), r);
    this.host.replaceChildren(table);
    if (rows.length > MOST) {
      const more = document.createElement('p');
      more.className = 'dim';
      more.textContent = `${rows.length - MOST} smaller functions are not shown: search for them.`;
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
      cell.textContent = `${value(v, this.unit)}  ${percent(v, this.total)}`;
      cell.style.setProperty('--share', `${this.total ? (100 * v) / this.total : 0}%`);
    }
  }
}
