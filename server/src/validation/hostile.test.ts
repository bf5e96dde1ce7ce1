import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { promisify } from "node:util";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { afterEach, describe, expect, it } from "vitest";
import { LIMITS } from "../config.js";
import type { Schema, Validator } from "./port.js";
import { ThreadPool } from "./thread-pool.js";
import { createValidator } from "./validator.js";

function schemaOf(schema: unknown): Schema {
  const text = JSON.stringify(schema);
  return { text, sha256: createHash("sha256").update(text).digest("hex") };
}

/** Two ways a level, thirty levels: 2^30 steps for a string. 1.4 kB. */
const doubling = (title: string): Schema =>
  schemaOf({
    title,
    $ref: "#/$defs/0",
    $defs: Object.fromEntries(
      Array.from({ length: 31 }, (_, i) => [
        i,
        i === 30 ? { type: "string" } : { allOf: [{ $ref: `#/$defs/${i + 1}` }, { $ref: `#/$defs/${i + 1}` }] },
      ]),
    ),
  });
const patterned = (title: string): Schema =>
  schemaOf({
    title,
    properties: Object.fromEntries(Array.from({ length: 3000 }, (_, i) => [`p${i}`, { type: "string", pattern: `^a${i}(b|c)*$` }])),
  });
const backtracking = schemaOf({ type: "string", pattern: "^(a+)+$(?!b)" });
/** Recursive, so never judged on the event loop. */
const innocent = schemaOf({ properties: { kids: { type: "array", items: { $ref: "#" } } } });
const innocentText = '{"kids":[{"kids":[]}]}';

const open: { close(): Promise<void> }[] = [];
afterEach(async () => {
  for (const each of open.splice(0)) await each.close();
});

function validator(limits: Partial<typeof LIMITS> = {}): Validator {
  const made = createValidator({ ...LIMITS, ...limits });
  open.push(made);
  return made;
}

describe("a hostile schema or value", () => {
  it("of doubling references is stopped at the limit", async () => {
    const own = validator();
    expect(await own.check(doubling(""))).toBeUndefined();
    expect(await own.validate(doubling(""), '"x"')).toEqual({ valid: false, tooCostly: true });
    expect((await own.validate(doubling(""), "1")).valid).toBe(false);
  });

  it("of a backtracking pattern is stopped at the limit, and the thread lives on", async () => {
    const own = validator();
    expect(await own.validate(backtracking, JSON.stringify(`${"a".repeat(60)}!`))).toEqual({ valid: false, tooCostly: true });
    expect(await own.validate(backtracking, '"aaa"')).toEqual({ valid: true });
  });

  it("of 3,000 patterned properties is stopped at the limit of compiling, and says so", async () => {
    const problem = await validator({ compilationMs: 200 as 1000 }).check(patterned(""));
    expect(problem).toEqual({ path: "", message: expect.stringContaining("limit of 200 ms"), tooCostly: true });
  });

  it("of 16,000 objects that must differ is judged in linear time", async () => {
    const items = (last: number) =>
      JSON.stringify(Array.from({ length: 16_000 }, (_, i) => ({ id: i < 15_999 ? i : last, name: `n${i % 7}` })));
    const own = validator({ validationMs: 2000 as 100 });
    const schema = schemaOf({ type: "array", items: { type: "object" }, uniqueItems: true });
    expect(await own.validate(schema, items(15_999))).toEqual({ valid: true });
    const duplicate = JSON.stringify([...(JSON.parse(items(15_999)) as unknown[]), { name: "n3", id: 3 }]);
    expect(await own.validate(schema, duplicate)).toMatchObject({
      violations: [{ rule: "uniqueItems", message: expect.stringContaining("3 and 16000") }],
    });
  });

  it("that exhausts a thread's memory is stopped, and the next question is answered", async () => {
    const pool = new ThreadPool({ threads: 2, waiting: 10, compileMs: 60_000, judgeMs: 1000, memoryMb: 48 });
    open.push(pool);
    const large = schemaOf({
      anyOf: Array.from({ length: 4000 }, (_, i) => ({
        properties: { [`p${i}`]: { type: "string", enum: [`${i}`] } },
        required: [`p${i}`],
      })),
    });
    const ask = (schema: Schema) => pool.ask({ sha256: schema.sha256, schema: schema.text, text: undefined, source: "a" });
    expect(await ask(large)).toEqual({ type: "stopped" });
    expect(await ask(innocent)).toEqual({ type: "checked", problem: undefined });
  });

  it("that nests into the stack is stopped", async () => {
    const chain = schemaOf({
      $ref: "#/$defs/0",
      $defs: Object.fromEntries(
        Array.from({ length: 3000 }, (_, i) => [i, i === 2999 ? true : { properties: { a: { $ref: `#/$defs/${i + 1}` } } }]),
      ),
    });
    const problem = await validator().check(chain);
    expect(problem === undefined || /deep|limit/.test(problem.message)).toBe(true);
  });

  it.each<[string, (own: Validator, i: number) => Promise<unknown>]>([
    ["judgements by many costly schemas", (own, i) => own.validate(doubling(String(i)), '"x"', "hostile")],
    ["judgements by one costly schema", (own) => own.validate(doubling(""), '"x"', "hostile")],
    ["checks of costly schemas", (own, i) => own.check(patterned(String(i)), "hostile")],
    ["judgements of a backtracking pattern", (own, i) => own.validate(backtracking, JSON.stringify(`${"a".repeat(40 + i)}!`), "hostile")],
  ])(
    "does not delay another session: %s",
    async (_what, attack) => {
      const own = validator({ compilationMs: 200 as 1000 });
      await own.validate(innocent, innocentText, "innocent");
      let settled = 0;
      const attackers = Array.from({ length: 100 }, (_, i) =>
        attack(own, i).then(
          () => settled++,
          // Closing the validator gives up the rest.
          () => settled++,
        ),
      );
      const delays: number[] = [];
      while (settled < 3) {
        const began = performance.now();
        expect(await own.validate(innocent, innocentText, "innocent")).toEqual({ valid: true });
        delays.push(performance.now() - began);
      }
      delays.sort((a, b) => a - b);
      // On an idle machine the longest is below 60 ms; a busy one delays everything.
      expect(delays[Math.floor(delays.length * 0.95)]).toBeLessThan(100);
      expect(delays.at(-1)).toBeLessThan(1000);
      await own.close();
      await Promise.all(attackers);
    },
    90_000,
  );
});

describe("the event loop", () => {
  it("is never held by a judgement of a schema proved cheap", async () => {
    const own = validator();
    const many = (n: number, schema: unknown) => schemaOf({ items: { allOf: Array.from({ length: n }, () => schema) } });
    const text = (item: unknown) =>
      JSON.stringify(Array.from({ length: 60_000 / (JSON.stringify(item).length + 1) }, () => item)).slice(0, 65_000);
    const attacks: [Schema, string][] = [
      [many(190, { type: "string" }), text(1)],
      [many(30, { pattern: "^(?:a|b)*a(?:a|b){20}$" }), text(`${"abbabaabbbab".repeat(10)}c`)],
      [many(20, { format: "email" }), text(`${"a-".repeat(2000)}@${"b-".repeat(2000)}`)],
      [many(20, { format: "uri" }), text(`http:${"a%20/".repeat(5000)} `)],
      [many(20, { format: "hostname" }), text("a.".repeat(5000))],
      [many(20, { uniqueItems: true }), text([[1], [2], [1]])],
      [many(60, { anyOf: [{ const: 1 }, { type: "object" }] }), text("x")],
    ];
    for (const [schema, value] of attacks) {
      expect(await own.check(schema)).toBeUndefined();
      const began = performance.now();
      const answer = own.validate(schema, value);
      // Up to here it ran on the event loop, if it did.
      expect(performance.now() - began).toBeLessThan(200);
      expect((await answer).valid).toBe(false);
    }
  });

  it("goes on while threads judge", async () => {
    const own = validator();
    const answer = own.validate(doubling(""), '"x"');
    let turns = 0;
    const turning = setInterval(() => turns++, 1);
    await answer;
    clearInterval(turning);
    expect(turns).toBeGreaterThan(5);
  });
});

describe("memory", () => {
  it("does not grow with the number of sessions", async () => {
    setFlagsFromString("--expose-gc");
    const gc = runInNewContext("gc") as () => void;
    const own = validator();
    const tool = (session: number, i: number) =>
      schemaOf(JSON.parse(JSON.stringify({ properties: { [`p${i}`]: { type: "string" }, n: { const: session } } })));
    const used = async (sessions: number, name: (session: number) => number): Promise<number> => {
      for (let session = 0; session < sessions; session++) {
        for (let i = 0; i < 5; i++) {
          expect(await own.check(tool(name(session), i))).toBeUndefined();
          await own.validate(tool(name(session), i), '{"p0":"x"}');
        }
      }
      gc();
      return process.memoryUsage().heapUsed / 2 ** 20;
    };
    const before = await used(200, () => 0);
    expect((await used(3000, () => 0)) - before).toBeLessThan(20);
    // Of different schemas too, only so many are kept.
    const full = await used(250, (session) => session);
    expect((await used(250, (session) => 1000 + session)) - full).toBeLessThan(20);
  }, 60_000);
});

describe("threads", () => {
  it("do not keep the process alive when nothing is asked", async () => {
    const script = `
      import { createValidator } from ${JSON.stringify(new URL("../../dist/validation/validator.js", import.meta.url).href)};
      const validator = createValidator(${JSON.stringify(LIMITS)});
      const verdict = await validator.validate(${JSON.stringify(innocent)}, ${JSON.stringify(innocentText)});
      console.log(JSON.stringify(verdict));`;
    const ended = await promisify(execFile)(process.execPath, ["--input-type=module", "-e", script], { timeout: 20_000 });
    expect(ended).toEqual({ stdout: '{"valid":true}\n', stderr: "" });
  });

  it("give up what is asked when the validator is closed", async () => {
    const own = validator();
    const givenUp = expect(own.validate(doubling(""), '"x"')).rejects.toThrow("closed");
    await own.close();
    await givenUp;
    await expect(own.validate(innocent, innocentText)).rejects.toThrow("closed");
  });

  it("lose the newest of the greediest source when too much waits", async () => {
    const own = validator({ validatorQueue: 5 as 4096 });
    const greedy = Array.from({ length: 30 }, () => own.validate(doubling(""), '"x"', "greedy"));
    expect(await own.validate(innocent, innocentText, "modest")).toEqual({ valid: true });
    expect(new Set((await Promise.all(greedy)).map((verdict) => JSON.stringify(verdict)))).toEqual(
      new Set(['{"valid":false,"tooCostly":true}']),
    );
  });
});
