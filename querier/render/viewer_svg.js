/* SPDX-License-Identifier: Apache-2.0
   The flame graph inside its own SVG: click to zoom, type to search. Names are read from the bars'
   titles and only ever written as text. */
(function () {
  'use strict';
  var me = document.currentScript;
  var svg = (me && me.ownerSVGElement) || document.documentElement;
  var LEFT = 10, WIDTH = 1180, CHAR = 6.7;
  var bars = [], zoomed = 0, word = '';

  function at(id) { return svg.querySelector('#' + id); }

  var groups = svg.querySelectorAll('#bars > g');
  for (var i = 0; i < groups.length; i++) {
    var g = groups[i], rect = g.querySelector('rect'), title = g.querySelector('title').textContent;
    bars.push({
      g: g, rect: rect, text: g.querySelector('text'), title: title.replace('\n', '  '),
      name: title.split('\n')[0], x: +rect.getAttribute('x') - LEFT,
      w: +rect.getAttribute('width'), y: +rect.getAttribute('y')
    });
    g.bar = i;
  }

  function label(b, w) {
    var n = Math.floor((w - 6) / CHAR);
    var s = n < 3 ? '' : b.name.length <= n ? b.name : b.name.slice(0, n - 2) + '..';
    if (!b.text && !s) return;
    if (!b.text) {
      b.text = document.createElementNS('http://www.w3.org/2000/svg', 'text');
      b.text.setAttribute('y', b.y + 12);
      b.g.appendChild(b.text);
    }
    b.text.textContent = s;
  }

  function zoom(to) {
    var z = bars[to], scale = WIDTH / Math.max(z.w, 1e-9);
    zoomed = to;
    for (var i = 0; i < bars.length; i++) {
      var b = bars[i], x = (b.x - z.x) * scale, w = b.w * scale;
      var above = b.y < z.y && b.x <= z.x + 1e-6 && b.x + b.w >= z.x + z.w - 1e-6;
      var inside = b.y >= z.y && b.x >= z.x - 1e-6 && b.x + b.w <= z.x + z.w + 1e-6;
      b.g.style.display = above || inside ? '' : 'none';
      if (!above && !inside) continue;
      b.g.style.opacity = above ? 0.5 : 1;
      if (above) { x = 0; w = WIDTH; }
      b.rect.setAttribute('x', LEFT + x);
      b.rect.setAttribute('width', w);
      label(b, w);
      if (b.text) b.text.setAttribute('x', LEFT + x + 3);
    }
    at('reset').style.display = to ? '' : 'none';
  }

  /* The share of all that lies below bars that match, each part once. */
  function search() {
    var hits = [], sum = 0, right = -1;
    for (var i = 0; i < bars.length; i++) {
      var hit = word !== '' && bars[i].name.toLowerCase().indexOf(word) >= 0;
      bars[i].rect.setAttribute('class', hit ? 'hit' : '');
      if (hit) hits.push(bars[i]);
    }
    hits.sort(function (a, b) { return a.x - b.x || b.w - a.w; });
    for (var k = 0; k < hits.length; k++) {
      var from = Math.max(hits[k].x, right), to = hits[k].x + hits[k].w;
      if (to > from) { sum += to - from; right = to; }
    }
    at('matched').textContent = word === '' ? '' :
      'matched ' + (100 * sum / Math.max(bars[0].w, 1e-9)).toFixed(2) + '%';
  }

  function barOf(e) {
    for (var n = e.target; n && n !== svg; n = n.parentNode)
      if (n.bar !== undefined) return n.bar;
    return -1;
  }

  if (!bars.length) return;
  svg.addEventListener('click', function (e) {
    var b = barOf(e);
    if (b >= 0) zoom(b);
    else if (e.target.id === 'reset') zoom(0);
  });
  svg.addEventListener('mouseover', function (e) {
    var b = barOf(e);
    at('details').textContent = b < 0 ? '' : bars[b].title;
  });
  svg.addEventListener('keydown', function (e) { if (e.key === 'Escape') zoom(0); });
  var input = at('search');
  if (input) input.addEventListener('input', function () {
    word = input.value.toLowerCase();
    search();
  });
  svg.setAttribute('data-ready', bars.length);
})();
