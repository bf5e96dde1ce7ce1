import { createHash } from "node:crypto";
import type { CallToolRequest, Failure, Outcome, ToolCallStarted } from "@aexhq/brain-proto";
import { LIMITS } from "../config.js";
import type { Catalogue, Placement } from "../core/catalogue.js";
import { acceptJson, canonicalJson } from "../core/json.js";
import { checkKey, checkName } from "../core/names.js";
import { acceptOutcome, failed, failure } from "../core/outcome.js";
import { invalidArgument, Refusal } from "../core/refusal.js";
import type { Schema, Validator, Verdict } from "../validation/port.js";

/** The input of a call as it is journaled, and what is wrong with it already. */
export interface AcceptedInput {
  readonly text: string;
  readonly problem: string | undefined;
}

/** Puts the core's rules and the validator together: what is judged here once is what is journaled and run. */
export class Judge {
  readonly #validator: Validator;
  /** Digests by the object they were taken of; a catalogue is immutable. */
  readonly #definitions = new WeakMap<Placement, { definition: string; input: Schema; output: Schema | undefined }>();

  constructor(validator: Validator) {
    this.#validator = validator;
  }

  /** @throws Refusal `invalid_schema` or `schema_too_costly`, naming the Tool and the path. */
  async checkSchemas(catalogue: Catalogue, sessionId: string): Promise<void> {
    const checked = new Set<string>();
    for (const placement of catalogue.placements) {
      const { name } = placement.definition;
      const { input, output } = this.#digests(placement);
      for (const [what, schema] of [
        ["input", input],
        ["output", output],
      ] as const) {
        if (schema === undefined || checked.has(schema.sha256)) continue;
        checked.add(schema.sha256);
        const problem = await this.#validator.check(schema, sessionId);
        if (problem === undefined) continue;
        const path = shorten(problem.path);
        const where = path === "" ? "its root" : path;
        throw new Refusal(
          problem.tooCostly === true ? "schema_too_costly" : "invalid_schema",
          `the ${what} schema of Tool ${name} cannot be used, at ${where}: ${shorten(problem.message)}`,
          { tool: name, path },
        );
      }
    }
  }

  definitionSha256(placement: Placement): string {
    return this.#digests(placement).definition;
  }

  /** @throws Refusal `invalid_argument` for names that are none; input that is none is a failed result, not a refusal. */
  acceptCall(request: CallToolRequest): AcceptedInput {
    checkName("name", request.name);
    checkName("environment", request.environment);
    const accepted = acceptJson(request.inputJson, LIMITS.valueBytes);
    if (accepted.ok) return { text: accepted.text, problem: undefined };
    // Journaled as it came where it fits, so that the record shows what was wrong with it.
    const fits = Buffer.byteLength(request.inputJson) <= LIMITS.valueBytes;
    return { text: fits ? request.inputJson : "", problem: accepted.problem };
  }

  /** Why the call cannot run, or nothing. */
  async input(catalogue: Catalogue, request: CallToolRequest, input: AcceptedInput): Promise<Failure | undefined> {
    const { name, environment } = request;
    const placement = catalogue.find(name, environment);
    if (placement === undefined) {
      const places = catalogue.placements.filter((other) => other.definition.name === name).map((other) => other.environment.name);
      const declared = places.length === 0 ? `the session has no Tool ${name}` : `it is placed in ${places.join(", ")}`;
      return failure("placement_not_found", `Tool ${name} is not placed in Environment ${environment}; ${declared}`);
    }
    if (input.problem !== undefined) return failure("invalid_input", `the input of Tool ${name} cannot be used: ${input.problem}`);
    const verdict = await this.#validator.validate(this.#digests(placement).input, input.text, request.sessionId);
    return failureOf(verdict, "invalid_input", `the input of Tool ${name} does not match its schema`, name);
  }

  /** The outcome in the form that is recorded. @throws Refusal `invalid_argument` for a failure that breaks its limits. */
  async outcome(
    { sessionId, catalogue }: { readonly sessionId: string; readonly catalogue: Catalogue },
    started: ToolCallStarted,
    reported: Outcome | undefined,
  ): Promise<Outcome> {
    const outcome = acceptOutcome(reported, started.name);
    if (outcome.status.case !== "ok") return outcome;
    const placement = catalogue.find(started.name, started.environment);
    const output = placement === undefined ? undefined : this.#digests(placement).output;
    if (output === undefined) return outcome;
    const verdict = await this.#validator.validate(output, outcome.status.value.valueJson, sessionId);
    const invalid = failureOf(verdict, "invalid_output", `the output of Tool ${started.name} does not match its schema`, started.name);
    return invalid === undefined ? outcome : failed("error", invalid);
  }

  /** @throws Refusal `invalid_argument` naming the field. */
  acceptEvent(event: { kind: string; dataJson: string; emitId: string }): { kind: string; dataJson: string; emitId: string } {
    if (event.kind.length === 0 || event.kind.length > LIMITS.eventKindLength) {
      throw invalidArgument("kind", `must be 1 to ${LIMITS.eventKindLength} characters, and is ${event.kind.length}`);
    }
    checkKey("kind", event.kind);
    checkKey("emit_id", event.emitId);
    const data = acceptJson(event.dataJson === "" ? "null" : event.dataJson, LIMITS.valueBytes);
    if (!data.ok) throw invalidArgument("data_json", data.problem);
    return { kind: event.kind, dataJson: data.text, emitId: event.emitId };
  }

  #digests(placement: Placement): { definition: string; input: Schema; output: Schema | undefined } {
    let digests = this.#definitions.get(placement);
    if (digests === undefined) {
      const { inputSchemaJson, outputSchemaJson } = placement.definition;
      digests = {
        definition: sha256(placement.canonicalDefinition),
        input: schemaOf(inputSchemaJson),
        output: outputSchemaJson === undefined ? undefined : schemaOf(outputSchemaJson),
      };
      this.#definitions.set(placement, digests);
    }
    return digests;
  }
}

function schemaOf(text: string): Schema {
  return { sha256: sha256(canonicalJson(JSON.parse(text))), text };
}

function sha256(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}

function failureOf(verdict: Verdict, code: "invalid_input" | "invalid_output", message: string, tool: string): Failure | undefined {
  if (verdict.valid) return undefined;
  if ("tooCostly" in verdict) {
    return failure(
      "schema_too_costly",
      `checking a value against the schema of Tool ${tool} took longer than ${LIMITS.validationMs} ms; simplify the schema or send less`,
    );
  }
  // Names of members can be as long as the value they stand in.
  const violations = verdict.violations.slice(0, LIMITS.violations).map(({ path, rule, message: broken }) => ({
    path: shorten(path),
    rule: shorten(rule),
    message: shorten(broken),
  }));
  const [first] = violations;
  const where = first === undefined ? "" : `: ${first.path === "" ? "the value" : first.path} ${first.message}`;
  return failure(code, `${message}${where}`, { details: { violations } });
}

function shorten(text: string): string {
  return text.length <= 512 ? text : `${text.slice(0, 512).toWellFormed()}...`;
}
