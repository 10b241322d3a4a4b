import assert from 'node:assert/strict';
import { test } from 'node:test';
import { barAt, decode, functions, levelOf, matched, path } from './tree';

// a;b = 3, a = 2, c = 5
const small = decode({
  names: ['total', 'a', 'c', 'b'],
  levels: [[0, 10, 0, 0], [0, 5, 2, 1, 0, 5, 5, 2], [2, 3, 3, 3]],
  numTicks: 10,
  maxSelf: 5,
});

test('bars get absolute places and parents', () => {
  assert.deepEqual([...small.x], [0, 0, 5, 2]);
  assert.deepEqual([...small.parent], [-1, 0, 0, 1]);
  assert.equal(levelOf(small, 3), 2);
  assert.deepEqual(path(small, 3), [0, 1, 3]);
});

test('a point finds its bar, or none', () => {
  assert.equal(barAt(small, 1, 4.9), 1);
  assert.equal(barAt(small, 1, 5), 2);
  assert.equal(barAt(small, 2, 1), -1);
  assert.equal(barAt(small, 2, 4.9), 3);
  assert.equal(barAt(small, 9, 0), -1);
});

test('recursion counts once in totals', () => {
  // a;a;b = 4, b = 1
  const t = decode({
    names: ['total', 'a', 'b'],
    levels: [[0, 5, 0, 0], [0, 4, 0, 1, 0, 1, 1, 2], [0, 4, 0, 1], [0, 4, 4, 2]],
    numTicks: 5,
    maxSelf: 4,
  });
  assert.deepEqual(functions(t), [
    { name: 'b', self: 5, total: 5 },
    { name: 'a', self: 0, total: 4 },
  ]);
  assert.equal(matched(t, (n) => n === 1), 4);
  assert.equal(matched(t, (n) => n !== 0), 5);
});

test('an empty answer is a tree without bars', () => {
  const t = decode({ names: [], levels: [], numTicks: 0, maxSelf: 0 });
  assert.deepEqual(functions(t), []);
  assert.equal(barAt(t, 0, 0), -1);
});
