/** Uploaded profiles: drop a file, look at it, compare two, delete. */
import * as api from './api';
import { bytes, percent, typeUnit, value } from './format';
import { readAdhoc, writeAdhoc, type AdhocState } from './state';
import { decode, decodeDiff, type Tree } from './tree';

const SURE_MS = 4000;
const el = <T extends HTMLElement>(id: string) => document.getElementById(id) as T;

export interface AdhocEvents {
  /** null: nothing is looked at. */
  show(tree: Tree | null, unit: string, folded: string): void;
  say(text: string, bad?: boolean): void;
}

function button(text: string, title: string, click: () => void): HTMLButtonElement {
  const b = document.createElement('button');
  b.type = 'button';
  b.textContent = text;
  b.title = title;
  b.addEventListener('click', click);
  return b;
}

export class Adhoc {
  private state: AdhocState = { id: '', other: '', type: '' };
  private known: api.AdhocProfile[] = [];
  private asked = 0;

  constructor(private events: AdhocEvents) {
    const drop = el('drop');
    const file = el<HTMLInputElement>('adhoc-file');
    file.addEventListener('change', () => {
      void this.upload([...(file.files ?? [])]);
      file.value = '';
    });
    // The whole page takes files, so that none is opened in place of it.
    addEventListener('dragover', (e) => {
      if (document.body.dataset.view !== 'adhoc') return;
      e.preventDefault();
      drop.classList.add('over');
    });
    for (const over of ['dragleave', 'drop']) addEventListener(over, () => drop.classList.remove('over'));
    addEventListener('drop', (e) => {
      if (document.body.dataset.view !== 'adhoc') return;
      e.preventDefault();
      void this.upload([...(e.dataTransfer?.files ?? [])]);
    });
    el<HTMLSelectElement>('adhoc-type').addEventListener('change', (e) =>
      this.go({ ...this.state, type: (e.target as HTMLSelectElement).value }),
    );
    el('adhoc-swap').addEventListener('click', () =>
      this.go({ ...this.state, id: this.state.other, other: this.state.id }),
    );
    el('adhoc-alone').addEventListener('click', () => this.go({ ...this.state, other: '' }));
  }

  /** Shows what the address says. */
  async open(hash: string): Promise<void> {
    this.state = readAdhoc(hash) ?? { id: '', other: '', type: '' };
    const mine = ++this.asked;
    document.body.classList.add('loading');
    try {
      const list = await api.adhocList();
      if (mine !== this.asked) return;
      this.known = list.profiles.reverse();
      this.drawList(list);
      this.events.say('');
      await this.view(mine);
    } catch (e) {
      if (mine !== this.asked) return;
      this.head(null);
      this.events.show(null, '', '');
      this.events.say(e instanceof Error ? e.message : String(e), true);
    } finally {
      if (mine === this.asked) {
        document.body.classList.remove('loading');
        document.body.dataset.ready = '1';
      }
    }
  }

  /** Answers that are still under way are not shown any more. */
  leave(): void {
    this.asked++;
    document.body.classList.remove('loading');
  }

  private go(to: AdhocState): void {
    history.pushState(null, '', writeAdhoc(to));
    void this.open(location.hash);
  }

  private async view(mine: number): Promise<void> {
    const { id, other, type } = this.state;
    if (!id) {
      this.head(null);
      this.events.show(null, '', '');
      return;
    }
    const r = await api.adhocGet(id, other, type);
    if (mine !== this.asked) return;
    this.head(r);
    const unit = typeUnit(r.adhoc.types.find((t) => t.type === r.profileType)?.id ?? '');
    const tree = other ? decodeDiff(r.flamebearer, r.leftTicks ?? 0, r.rightTicks ?? 0) : decode(r.flamebearer);
    this.events.show(tree, unit, other ? '' : api.adhocFolded(id, r.profileType));
  }

  private head(r: api.AdhocView | null): void {
    el('adhoc-head').hidden = !r;
    document.title = r ? `${r.adhoc.name} · Embertree` : 'Ad hoc · Embertree';
    if (!r) return;
    el('adhoc-name').textContent = r.adhocRight ? `${r.adhoc.name} → ${r.adhocRight.name}` : r.adhoc.name;
    const types = r.adhocRight
      ? r.adhoc.types.filter((t) => r.adhocRight!.types.some((u) => alike(t.id, u.id)))
      : r.adhoc.types;
    const select = el<HTMLSelectElement>('adhoc-type');
    select.replaceChildren(...types.map((t) => new Option(t.type, t.type)));
    select.value = r.profileType;
    for (const only of ['adhoc-swap', 'adhoc-alone', 'adhoc-key']) el(only).hidden = !r.adhocRight;
  }

  private drawList(list: api.AdhocList): void {
    const host = el('adhoc-list');
    if (!this.known.length) {
      const none = document.createElement('p');
      none.className = 'dim';
      none.textContent = 'Nothing was uploaded yet.';
      host.replaceChildren(none);
      return;
    }
    const table = document.createElement('table');
    const head = table.createTHead().insertRow();
    for (const title of ['Profile', 'What is in it', 'Uploaded', 'Size', '']) {
      const th = document.createElement('th');
      th.textContent = title;
      head.append(th);
    }
    const body = table.createTBody();
    for (const p of this.known) this.drawRow(body.insertRow(), p);
    const room = document.createElement('p');
    room.className = 'dim';
    const used = this.known.reduce((n, p) => n + p.bytes, 0);
    room.textContent = `${this.known.length} of ${list.max} profiles, ${bytes(used)} of ${bytes(list.bytesMax)}`;
    host.replaceChildren(table, room);
  }

  private drawRow(tr: HTMLTableRowElement, p: api.AdhocProfile): void {
    const { id, other } = this.state;
    const name = button(p.name, 'Show as a flame graph', () => this.go({ id: p.id, other: '', type: '' }));
    name.className = 'link';
    tr.className = p.id === id || p.id === other ? 'chosen' : '';
    tr.insertCell().append(name);
    const what = tr.insertCell();
    const main = p.types[0];
    what.textContent = `${p.format}: ${main ? `${main.type} ${value(main.total, typeUnit(main.id))}` : ''}`;
    if (p.types.length > 1) what.append(` and ${p.types.length - 1} more`);
    what.title = p.types.map((t) => `${t.type} ${value(t.total, typeUnit(t.id))}`).join('\n');
    tr.insertCell().textContent = new Date(p.uploadedAt).toLocaleString();
    tr.insertCell().textContent = bytes(p.size);
    const acts = tr.insertCell();
    acts.className = 'acts';
    const compare = button('Compare', 'Compare what is shown with this one', () =>
      this.go({ id, other: p.id, type: '' }),
    );
    compare.disabled = !id || p.id === id || p.id === other;
    acts.append(compare, this.deleteButton(p));
  }

  /** The first click asks, the second one deletes. */
  private deleteButton(p: api.AdhocProfile): HTMLButtonElement {
    const b = button('Delete', `Delete ${p.name}`, () => {
      if (b.dataset.sure) {
        void this.remove(p);
        return;
      }
      b.dataset.sure = '1';
      b.textContent = 'Really?';
      window.setTimeout(() => {
        delete b.dataset.sure;
        b.textContent = 'Delete';
      }, SURE_MS);
    });
    b.dataset.act = 'delete';
    return b;
  }

  private async remove(p: api.AdhocProfile): Promise<void> {
    try {
      await api.adhocDelete(p.id);
    } catch (e) {
      this.events.say(e instanceof Error ? e.message : String(e), true);
      return;
    }
    const { id, other, type } = this.state;
    const gone = p.id === id || p.id === other;
    this.go(gone ? { id: '', other: '', type: '' } : { id, other, type });
  }

  /** Uploads one after the other; a refused file is shown, and the others continue. */
  private async upload(files: File[]): Promise<void> {
    const bar = el<HTMLProgressElement>('adhoc-progress');
    const says = el('adhoc-says');
    const refused: string[] = [];
    let last = '';
    for (const file of files) {
      bar.hidden = false;
      says.textContent = `Uploading ${file.name} …`;
      try {
        last = (await api.adhocUpload(file, (share) => this.progress(bar, says, file, share))).id;
      } catch (e) {
        refused.push(`${file.name}: ${e instanceof Error ? e.message : String(e)}`);
      }
    }
    bar.hidden = true;
    says.textContent = '';
    if (last) this.go({ id: last, other: '', type: '' });
    const errors = el('adhoc-errors');
    errors.replaceChildren(
      ...refused.map((text) => {
        const li = document.createElement('li');
        li.textContent = text;
        return li;
      }),
    );
    errors.hidden = !refused.length;
  }

  private progress(bar: HTMLProgressElement, says: HTMLElement, file: File, share: number): void {
    bar.value = share;
    says.textContent =
      share < 1 ? `Uploading ${file.name}: ${percent(share, 1)}` : `Reading ${file.name} on the server …`;
  }
}

/** Types are compared by what is measured, and in what. */
function alike(a: string, b: string): boolean {
  const [x, y] = [a.split(':'), b.split(':')];
  return x[1] === y[1] && x[2] === y[2];
}
