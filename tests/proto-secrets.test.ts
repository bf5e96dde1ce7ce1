/**
 * What a reader of sessions and journals can never come upon.
 *
 * 1. No field that is reachable from a Session or a Record has a name that speaks of a secret.
 * 2. An exception stands below by its full name, with its reason.
 */

import { RecordSchema, RegisterHostResponseSchema, SessionSchema } from "@aexhq/brain-proto";
import type { DescField, DescMessage } from "@bufbuild/protobuf";
import { describe, expect, it } from "vitest";

const SECRET = /credential|token|secret|key|password/i;

/** Fields that speak of secrets and hold none. */
const HARMLESS: Readonly<Record<string, string>> = {
  "brain.v1.BrainEnvironment.secrets": "the names of the secrets a Component may read, never their values",
};

/** Every field of the message and of all messages it can hold, by full name. */
function reachable(root: DescMessage): Map<string, DescField> {
  const fields = new Map<string, DescField>();
  const seen = new Set<DescMessage>();
  const rooms = [root];
  for (let message = rooms.pop(); message !== undefined; message = rooms.pop()) {
    if (seen.has(message)) continue;
    seen.add(message);
    for (const field of message.fields) {
      fields.set(`${message.typeName}.${field.name}`, field);
      if (field.message !== undefined) rooms.push(field.message);
    }
  }
  return fields;
}

function secrets(root: DescMessage): string[] {
  return [...reachable(root).keys()].filter((name) => SECRET.test(name.slice(name.lastIndexOf(".") + 1)));
}

describe("the walk over the fields of a message", () => {
  it("reaches what lies in messages, lists and alternatives", () => {
    const names = [...reachable(RecordSchema).keys()];
    for (const name of [
      "brain.v1.SessionCreated.session",
      "brain.v1.ToolDefinition.input_schema_json",
      "brain.v1.Component.sha256",
      "brain.v1.FilesystemGrant.workspace",
      "brain.v1.RemoteEnvironment.url",
      "brain.v1.Receiver.instance_id",
      "brain.v1.Ok.value_json",
      "brain.v1.Failure.details_json",
      "google.protobuf.Timestamp.seconds",
    ]) {
      expect(names).toContain(name);
    }
  });

  it("finds a secret where there is one", () => {
    expect(secrets(RegisterHostResponseSchema)).toEqual(["brain.v1.RegisterHostResponse.host_token"]);
  });
});

describe.each([
  ["Session", SessionSchema],
  ["Record", RecordSchema],
])("what can be read of a %s", (_, root) => {
  it("has no field for a credential, token, secret, key or password", () => {
    expect(secrets(root).filter((name) => HARMLESS[name] === undefined)).toEqual([]);
  });

  it("has every field that is excepted, so that no exception outlives its field", () => {
    expect(secrets(root)).toEqual(expect.arrayContaining(Object.keys(HARMLESS)));
  });

  it("holds maps only of texts that the creator of the session wrote for readers", () => {
    const maps = [...reachable(root)].filter(([, field]) => field.fieldKind === "map").map(([name]) => name);
    expect(maps).toEqual(["brain.v1.Session.labels"]);
  });
});
