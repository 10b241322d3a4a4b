/** Notes at points of time (`/api/annotations`): lines over the timeline, a list below it. A click on
 * the timeline opens a field for a new one at that time. */
import * as api from './api';

export class NotesView {
  private service = '';
  private at = 0;
  private form: HTMLFormElement;
  private text: HTMLInputElement;
  private list: HTMLElement;

  constructor(
    host: HTMLElement,
    private draw: (notes: api.Note[]) => void,
    private failed: (message: string) => void,
    private changed: () => void,
  ) {
    this.form = host.querySelector('form')!;
    this.text = host.querySelector('input')!;
    this.list = host.querySelector('ul')!;
    this.form.addEventListener('submit', (e) => {
      e.preventDefault();
      const content = this.text.value.trim();
      if (content) void this.ask(api.annotate(this.service, this.at, content));
    });
    this.text.addEventListener('keydown', (e) => {
      if (e.key === 'Escape') this.form.hidden = true;
    });
  }

  /** What the page shows now: of a service, oldest first. */
  set(service: string, notes: api.Note[]): void {
    if (service !== this.service) this.form.hidden = true;
    this.service = service;
    this.draw(notes);
    this.list.hidden = !notes.length;
    this.list.replaceChildren(...notes.slice(-50).map((n) => this.row(n)));
  }

  /** A field for a new one at a time in ms. */
  open(at: number): void {
    if (!this.service) return;
    this.at = Math.round(at);
    this.form.hidden = false;
    this.form.querySelector('label')!.firstChild!.textContent = `Note at ${new Date(at).toLocaleString()} `;
    this.text.value = '';
    this.text.focus();
  }

  private row(n: api.Note): HTMLElement {
    const li = document.createElement('li');
    const when = document.createElement('time');
    when.dateTime = new Date(n.timestampMs).toISOString();
    when.textContent = new Date(n.timestampMs).toLocaleString();
    const drop = document.createElement('button');
    drop.type = 'button';
    drop.textContent = '×';
    drop.setAttribute('aria-label', `Delete the note ${n.content}`);
    drop.addEventListener('click', () => void this.ask(api.dropNote(n.id)));
    li.append(when, ` ${n.content} `, drop);
    return li;
  }

  private async ask(doing: Promise<void>): Promise<void> {
    try {
      await doing;
      this.form.hidden = true;
      this.changed();
    } catch (e) {
      this.failed(e instanceof Error ? e.message : String(e));
    }
  }
}
