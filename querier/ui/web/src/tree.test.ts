import assert from 'node:assert/strict';
import { test } from 'node:test';
import { barAt, change, decode, decodeDiff, functions, levelOf, matched, path } from './tree';

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

test('a comparison lays both sides over each other', () => {
  // left: a = 4, b = 6; right: b = 5, c = 5
  const t = decodeDiff(
    {
      names: ['total', 'a', 'b', 'c'],
      levels: [
        [0, 10, 0, 0, 10, 0, 0],
        [0, 4, 4, 0, 0, 0, 1, 0, 6, 6, 0, 5, 5, 2, 0, 0, 0, 0, 5, 5, 3],
      ],
      numTicks: 20,
      maxSelf: 6,
    },
    10,
    10,
  );
  assert.deepEqual([...t.x], [0, 0, 4, 15]);
  assert.deepEqual([...t.width], [20, 4, 11, 5]);
  assert.deepEqual([...t.self], [0, 4, 11, 5]);
  assert.deepEqual([...t.parent], [-1, 0, 0, 0]);
  assert.deepEqual([0, 1, 3].map((i) => change(t, i)), [0, -1, 1]);
  assert.ok(Math.abs(change(t, 2) + 1 / 6) < 1e-9);
});
