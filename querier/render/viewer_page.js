/* SPDX-License-Identifier: Apache-2.0
   A flame graph page that needs nothing but itself. Names are data: they are drawn on a canvas or
   set as text, never as markup. Only what is on the screen is drawn. */
(function () {
  'use strict';
  const data = JSON.parse(document.getElementById('profile').textContent);
  const ROW = 18, LEAST = 0.3, CHAR = 6.6;
  const at = (id) => document.getElementById(id);
  const canvas = at('canvas'), pen = canvas.getContext('2d'), scroll = at('scroll'), tip = at('tip');
  const two = data.sides === 2;
  let zoomed = null, word = '', scale = null;

  /* ---- bars: x and w are the sums of both sides, exact, and say what is inside of what; at and
     wide are what is drawn, where each side has half of the room whatever its total ---- */
  const step = two ? 7 : 4, levels = [];
  for (const flat of data.levels) {
    const bars = [];
    let a = 0, b = 0;
    for (let i = 0; i < flat.length; i += step) {
      a += flat[i];
      if (two) b += flat[i + 3];
      const left = flat[i + 1], right = two ? flat[i + 4] : 0;
      bars.push({ x: a + b, w: left + right, left, right, level: levels.length, l: a, r: b,
        selfL: flat[i + 2], selfR: two ? flat[i + 5] : 0, name: data.names[flat[i + step - 1]] });
      a += left;
      b += right;
    }
    levels.push(bars);
  }
  const all = levels.length && levels[0].length ? levels[0][0] : null;
  if (all) {
    const half = all.left && all.right ? 0.5 : 1;
    const perL = all.left ? half / all.left : 0, perR = all.right ? half / all.right : 0;
    for (const bars of levels)
      for (const b of bars) {
        b.at = b.l * perL + b.r * perR;
        b.wide = b.left * perL + b.right * perR;
      }
  }

  /* ---- numbers ---- */
  const times = [['ns', 1000], ['us', 1000], ['ms', 1000], ['s', 60], ['min', 60], ['h', 24], ['d', 0]];
  const sizes = [['B', 1024], ['KiB', 1024], ['MiB', 1024], ['GiB', 1024], ['TiB', 0]];
  function amount(v) {
    const t = ['nanoseconds', 'microseconds', 'milliseconds', 'seconds'].indexOf(data.unit);
    const units = t >= 0 ? times.slice(t) : data.unit === 'bytes' ? sizes : null;
    if (!units || v === 0) return String(v);
    let i = 0;
    while (units[i][1] && v >= units[i][1]) v /= units[i++][1];
    return (Number.isInteger(v) ? v : v.toFixed(2)) + units[i][0];
  }
  const share = (v, of) => (of ? (100 * v / of).toFixed(2) : '0') + '%';
  const rest = (b) => (all.left ? b.left / all.left : 0) * 100;
  const change = (b) => (all.right ? b.right / all.right : 0) - (all.left ? b.left / all.left : 0);

  /* ---- colours ---- */
  function hash(s) {
    let h = 2166136261;
    for (let i = 0; i < s.length; i++) h = Math.imul(h ^ s.charCodeAt(i), 16777619);
    return h >>> 0;
  }
  const known = new Map();
  function colour(b) {
    if (two) {
      const by = change(b), strength = Math.min(1, Math.sqrt(Math.abs(by)) * 1.6);
      return by === 0 ? '#c8c8c8'
        : `hsl(${by > 0 ? 8 : 145} ${Math.round(20 + strength * 60)}% ${Math.round(82 - strength * 26)}%)`;
    }
    let c = known.get(b.name);
    if (!c) {
      const cut = Math.max(b.name.lastIndexOf('/'), b.name.indexOf('.'));
      const h = hash(cut > 0 ? b.name.slice(0, cut) : b.name);
      known.set(b.name, c = `hsl(${8 + h % 46} ${62 + (h >>> 16) % 22}% ${64 + (h >>> 8) % 12}%)`);
    }
    return c;
  }

  /* ---- the graph ---- */
  function place(b) {
    const z = zoomed || all, above = b.level < z.level;
    if (above && !(b.x <= z.x && b.x + b.w >= z.x + z.w)) return null;
    if (!above && (b.x < z.x || b.x + b.w > z.x + z.w)) return null;
    return above ? [0, scale * z.wide] : [(b.at - z.at) * scale, b.wide * scale];
  }
  function draw() {
    const ratio = window.devicePixelRatio || 1, wide = scroll.clientWidth, high = scroll.clientHeight;
    canvas.width = wide * ratio;
    canvas.height = high * ratio;
    canvas.style.width = wide + 'px';
    canvas.style.height = high + 'px';
    at('space').style.height = Math.max(0, levels.length * ROW - high) + 'px';
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, wide, high);
    pen.font = '11px ui-monospace, monospace';
    if (!all || !all.w) return;
    scale = wide / (zoomed || all).wide;
    const first = Math.floor(scroll.scrollTop / ROW), last = first + Math.ceil(high / ROW) + 1;
    for (let d = first; d < last && d < levels.length; d++) {
      const y = d * ROW - scroll.scrollTop;
      for (const b of levels[d]) {
        const p = place(b);
        if (!p || p[1] < LEAST) continue;
        pen.globalAlpha = zoomed && d < zoomed.level ? 0.5 : 1;
        pen.fillStyle = word && b.name.toLowerCase().includes(word) ? '#c050e0' : colour(b);
        pen.fillRect(p[0], y, Math.max(p[1] - 0.5, LEAST), ROW - 1);
        const n = Math.floor((p[1] - 6) / CHAR);
        if (n < 3) continue;
        pen.fillStyle = '#111';
        pen.fillText(b.name.length <= n ? b.name : b.name.slice(0, n - 2) + '..', p[0] + 3, y + 12.5);
      }
    }
    pen.globalAlpha = 1;
  }
  function under(e) {
    const box = canvas.getBoundingClientRect();
    const x = e.clientX - box.left, d = Math.floor((e.clientY - box.top + scroll.scrollTop) / ROW);
    for (const b of levels[d] || []) {
      const p = place(b);
      if (p && x >= p[0] && x < p[0] + p[1]) return b;
    }
    return null;
  }
  function about(b) {
    const self = two ? `self ${amount(b.selfL)} / ${amount(b.selfR)}` : `self ${amount(b.selfL)}`;
    if (!two) return `${b.name}\n${amount(b.left)} (${share(b.left, all.left)}), ${self}`;
    return `${b.name}\nleft ${amount(b.left)} (${share(b.left, all.left)})\n` +
      `right ${amount(b.right)} (${share(b.right, all.right)})\n${self}`;
  }
  function zoom(b) {
    zoomed = b === all ? null : b;
    at('reset').hidden = !zoomed;
    draw();
  }
  canvas.addEventListener('mousemove', (e) => {
    const b = under(e);
    tip.hidden = !b;
    if (!b) return;
    tip.textContent = about(b);
    tip.style.left = Math.min(e.clientX + 12, innerWidth - tip.offsetWidth - 8) + 'px';
    tip.style.top = Math.min(e.clientY + 14, innerHeight - tip.offsetHeight - 8) + 'px';
  });
  canvas.addEventListener('mouseleave', () => { tip.hidden = true; });
  canvas.addEventListener('click', (e) => { const b = under(e); if (b) zoom(b); });

  /* ---- the table: a function counts once per stack, however often it stands in it ---- */
  function functions() {
    const rows = new Map(), ends = levels.map(() => 0), path = [];
    const on = new Map();
    function enter(b) {
      let r = rows.get(b.name);
      if (!r) rows.set(b.name, r = { name: b.name, selfL: 0, selfR: 0, left: 0, right: 0 });
      r.selfL += b.selfL;
      r.selfR += b.selfR;
      const n = on.get(b.name) || 0;
      if (!n) { r.left += b.left; r.right += b.right; }
      on.set(b.name, n + 1);
      path.push(b);
    }
    if (all) path.push(all);
    while (path.length) {
      const top = path[path.length - 1], below = levels[top.level + 1] || [];
      const next = below[ends[top.level + 1] || 0];
      if (next && next.x >= top.x && next.x + next.w <= top.x + top.w && next.w <= top.w) {
        ends[top.level + 1]++;
        enter(next);
      } else {
        path.pop();
        if (path.length) on.set(top.name, on.get(top.name) - 1);
      }
    }
    return [...rows.values()];
  }
  const columns = two
    ? [['function', (r) => r.name, 'f'], ['left', (r) => r.left, 'n'], ['right', (r) => r.right, 'n'],
      ['change of share', (r) => change(r), 'n']]
    : [['function', (r) => r.name, 'f'], ['self', (r) => r.selfL, 'n'], ['total', (r) => r.left, 'n'],
      ['share', (r) => rest(r), 'n']];
  let rows = null, sorted = two ? 3 : 1, down = true;
  function cell(r, i) {
    const v = columns[i][1](r);
    if (i === 0) return v;
    if (i === 3) return two ? (100 * v).toFixed(2) + ' pp' : v.toFixed(2) + '%';
    return amount(v);
  }
  function table() {
    rows = rows || functions();
    const key = columns[sorted][1];
    const size = two && sorted === 3 ? (r) => Math.abs(key(r)) : key;
    const compare = (a, b) => (size(a) < size(b) ? -1 : size(a) > size(b) ? 1 : a.name < b.name ? -1 : 1);
    const shown = rows.filter((r) => !word || r.name.toLowerCase().includes(word)).sort(compare);
    if (down) shown.reverse();
    const body = at('rows');
    body.textContent = '';
    for (const r of shown.slice(0, 500)) {
      const tr = document.createElement('tr');
      columns.forEach((c, i) => {
        const td = document.createElement('td');
        td.className = c[2];
        td.textContent = cell(r, i);
        tr.append(td);
      });
      body.append(tr);
    }
    at('note').textContent = shown.length > 500 ? `500 of ${shown.length} functions` : '';
  }
  columns.forEach((c, i) => {
    const th = document.createElement('th');
    th.textContent = c[0];
    th.addEventListener('click', () => {
      down = sorted === i ? !down : i > 0;
      sorted = i;
      table();
    });
    at('heads').append(th);
  });

  /* ---- the head ---- */
  at('title').textContent = document.title;
  function show(graph) {
    at('scroll').hidden = !graph;
    at('table').hidden = graph;
    at('note').textContent = '';
    if (graph) draw(); else table();
  }
  at('graph-button').addEventListener('click', () => show(true));
  at('table-button').addEventListener('click', () => show(false));
  at('reset').addEventListener('click', () => zoom(all));
  at('search').addEventListener('input', (e) => {
    word = e.target.value.toLowerCase();
    if (at('table').hidden) draw(); else table();
  });
  scroll.addEventListener('scroll', draw);
  addEventListener('resize', draw);
  addEventListener('keydown', (e) => { if (e.key === 'Escape' && all) zoom(all); });
  at('total').textContent = !all || !all.w ? 'no data'
    : two ? `left ${amount(all.left)}, right ${amount(all.right)}` : `total ${amount(all.left)}`;
  show(true);
  document.body.dataset.ready = levels.reduce((n, l) => n + l.length, 0);
})();
