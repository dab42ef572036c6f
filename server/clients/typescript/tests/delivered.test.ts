/** Which events of a repeated stream are new. */

import assert from "node:assert/strict";
import test from "node:test";
import { Delivered } from "../src/delivered.js";
import type { StreamEvent } from "../src/index.js";

type Short = [id: number, event: string, text?: string];

/** The events that are delivered from several responses, one after another. */
function deliver(...responses: Short[][]): Short[] {
  const delivered = new Delivered();
  return responses.flatMap((response) => {
    delivered.reconnect();
    return response.filter(([id, event, text = "{}"]) => {
      return delivered.add({ event: { id, event, data: JSON.parse(text) } as StreamEvent, text });
    });
  });
}

test("events are delivered once", () => {
  const first: Short[] = [[9, "session_start"], [10, "a"], [11, "b"]];
  const again: Short[] = [...first, [12, "c"]];
  assert.deepEqual(deliver(first, again, again), again);
});

test("events that share an id are delivered, wherever the connection was lost", () => {
  const shared: Short[] = [[10, "a", "1"], [10, "a", "2"], [10, "b", "1"]];
  const whole: Short[] = [[9, "session_start"], ...shared, [11, "error"], [11, "done"]];
  for (let length = 0; length <= whole.length; length += 1) {
    assert.deepEqual(deliver(whole.slice(0, length), whole), whole, `after ${length}`);
  }
});

test("equal events of one connection are several events", () => {
  const equal: Short = [10, "a", "1"];
  const whole: Short[] = [[9, "session_start"], equal, equal, [10, "b"], equal, [11, "done"]];
  for (let first = 0; first <= whole.length; first += 1) {
    for (let second = 0; second <= whole.length; second += 1) {
      const responses = [whole.slice(0, first), whole.slice(0, second), whole];
      assert.deepEqual(deliver(...responses), whole, `after ${first} and ${second}`);
    }
  }
});

test("first event of a later response is not one of the session", () => {
  const first: Short = [9, "session_start", '{"version":"1"}'];
  const later: Short = [9, "session_start", '{"version":"2"}'];
  assert.deepEqual(deliver([first], [later, [9, "error"]]), [first, [9, "error"]]);
});

test("request that was closed in the meantime is missing in the repetition", () => {
  const first: Short[] = [[9, "session_start"], [10, "permission_request"], [18, "message", "1"]];
  assert.deepEqual(deliver(first, [[9, "session_start"], [18, "message", "1"], [20, "permission_resolved"]]), [
    ...first,
    [20, "permission_resolved"],
  ]);
});
