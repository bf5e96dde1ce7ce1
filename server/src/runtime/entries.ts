import { type Session, SessionCreatedSchema, SessionEndedSchema } from "@aexhq/brain-proto";
import { create } from "@bufbuild/protobuf";
import type { Entry } from "../core/entry.js";

export function sessionCreatedEntry(session: Session, principal: string, requestId: string): Entry {
  return { case: "sessionCreated", value: create(SessionCreatedSchema, { session, principal, requestId }) };
}

export function sessionEndedEntry(principal: string): Entry {
  return { case: "sessionEnded", value: create(SessionEndedSchema, { principal }) };
}
