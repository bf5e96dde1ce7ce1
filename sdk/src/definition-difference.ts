import { cutToBytes, jsonPointer } from "./json.js";
import type { ToolDefinition } from "./tool.js";

const MAX_PLACES = 5;
const MAX_SHOWN_BYTES = 120;

/** Where two definitions of one Tool part, said for a person: each place with what stands there in the one and the other. */
export function definitionDifference(one: ToolDefinition, other: ToolDefinition): string {
  const found = [
    ...(one.description === other.description ? [] : [`the description (${shown(one.description)} and ${shown(other.description)})`]),
    ...schemaDifference("input schema", one.inputSchemaJson, other.inputSchemaJson),
    ...schemaDifference("output schema", one.outputSchemaJson, other.outputSchemaJson),
  ];
  const rest = found.length - MAX_PLACES;
  return `${found.slice(0, MAX_PLACES).join(", ")}${rest > 0 ? `, and ${rest} more` : ""}`;
}

function schemaDifference(what: string, one: string | undefined, other: string | undefined): string[] {
  if (one === other) return [];
  if (one === undefined || other === undefined) return [`the ${what}, which only the ${one === undefined ? "second" : "first"} has`];
  const places: string[] = [];
  compare(JSON.parse(one), JSON.parse(other), [], (path, left, right) => {
    const where = path.length === 0 ? `the ${what}` : `the ${what} at ${jsonPointer(path)}`;
    if (left === undefined || right === undefined) {
      places.push(`${where} (only in the ${left === undefined ? "second" : "first"}: ${shown(left ?? right)})`);
    } else places.push(`${where} (${shown(left)} and ${shown(right)})`);
  });
  return places;
}

type Differ = (path: readonly string[], left: unknown, right: unknown) => void;

/** Both come from JSON, so nothing in them is undefined, and what is absent is. */
function compare(left: unknown, right: unknown, path: readonly string[], differ: Differ): void {
  if (!isContainer(left) || !isContainer(right) || Array.isArray(left) !== Array.isArray(right)) {
    if (!Object.is(left, right)) differ(path, left, right);
    return;
  }
  for (const name of new Set([...Object.keys(left), ...Object.keys(right)])) {
    compare(own(left, name), own(right, name), [...path, name], differ);
  }
}

function isContainer(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null;
}

function own(container: Readonly<Record<string, unknown>>, name: string): unknown {
  return Object.hasOwn(container, name) ? container[name] : undefined;
}

function shown(value: unknown): string {
  const text = JSON.stringify(value);
  const cut = cutToBytes(text, MAX_SHOWN_BYTES);
  return cut === text ? text : `${cut}...`;
}
