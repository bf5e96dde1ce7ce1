import { afterEach, expect, test, vi } from "vitest";
import { Happening, systemClock, wait } from "./clock.js";

afterEach(() => {
  vi.useRealTimers();
});

test("a wait longer than 2^31-1 ms does not end early", async () => {
  vi.useFakeTimers();
  const wake = vi.fn();
  systemClock.after(2 ** 31, wake);
  await vi.advanceTimersByTimeAsync(2 ** 31 - 1);
  expect(wake).not.toHaveBeenCalled();
  await vi.advanceTimersByTimeAsync(2);
  expect(wake).toHaveBeenCalledTimes(1);
});

test("a disarmed wait never wakes", async () => {
  vi.useFakeTimers();
  const wake = vi.fn();
  systemClock.after(10, wake)();
  await vi.advanceTimersByTimeAsync(20);
  expect(wake).not.toHaveBeenCalled();
  expect(vi.getTimerCount()).toBe(0);
});

test("waiting ends with an abort, and leaves no timer", async () => {
  vi.useFakeTimers();
  const controller = new AbortController();
  const waiting = wait(systemClock, 60_000, controller.signal);
  controller.abort();
  await waiting;
  await wait(systemClock, 60_000, controller.signal);
  expect(vi.getTimerCount()).toBe(0);
});

test("everyone who waits for a happening is woken once, or by the time", async () => {
  vi.useFakeTimers();
  const happening = new Happening(systemClock);
  const woken: string[] = [];
  const first = happening.next(Number.POSITIVE_INFINITY).then(() => woken.push("first"));
  const second = happening.next(1_000).then(() => woken.push("second"));
  happening.happened();
  await Promise.all([first, second]);
  expect(woken).toEqual(["first", "second"]);
  expect(vi.getTimerCount()).toBe(0);
  const third = happening.next(1_000).then(() => woken.push("third"));
  await vi.advanceTimersByTimeAsync(1_000);
  await third;
  expect(woken).toHaveLength(3);
});
