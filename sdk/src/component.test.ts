import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { expect, test } from "vitest";
import { component, isComponent } from "./component.js";

test("a Component is its file, read when it is needed", async () => {
  const folder = mkdtempSync(join(tmpdir(), "component-"));
  try {
    const file = join(folder, "inspect.wasm");
    const inspect = component(pathToFileURL(file));
    expect(isComponent(inspect)).toBe(true);
    await expect(inspect.read()).rejects.toThrow(new RegExp(`The Component ${file} cannot be read: ENOENT.*; build it`));
    writeFileSync(file, "\0asm");
    expect(Buffer.from(await inspect.read()).toString()).toBe("\0asm");
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test("a Component is its bytes, as they were when it was declared", async () => {
  const bytes = Uint8Array.of(0, 1, 2);
  const inMemory = component(bytes);
  bytes.fill(9);
  expect(await inMemory.read()).toEqual(Uint8Array.of(0, 1, 2));
  (await inMemory.read()).fill(7);
  expect(await inMemory.read()).toEqual(Uint8Array.of(0, 1, 2));
  expect(inMemory.name).toBe("of 3 bytes");
});

test("a Component is nothing else", () => {
  expect(() => component(new URL("https://example.com/x.wasm"))).toThrow("https://example.com/x.wasm is no file of this machine");
  expect(() => component("./x.wasm" as never)).toThrow("expected the URL of a file, or its bytes");
  expect(isComponent({ kind: "component", name: "x", read: () => undefined })).toBe(false);
});
