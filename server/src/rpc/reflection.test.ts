import { ErrorReasonSchema } from "@aexhq/brain-proto";
import { ServerReflection } from "@aexhq/brain-proto/grpc/reflection/v1/reflection_pb";
import { ServerReflection as ServerReflectionV1Alpha } from "@aexhq/brain-proto/grpc/reflection/v1alpha/reflection_pb";
import { createFileRegistry, fromBinary } from "@bufbuild/protobuf";
import { type FileDescriptorProto, FileDescriptorProtoSchema, FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { createClient, createRouterTransport } from "@connectrpc/connect";
import { describe, expect, test } from "vitest";
import { SERVED_SERVICES } from "./authorize.js";
import { registerReflection } from "./reflection.js";

const transport = createRouterTransport((router) => registerReflection(router, SERVED_SERVICES, [ErrorReasonSchema]));

type Question =
  | { case: "fileByFilename" | "fileContainingSymbol" | "allExtensionNumbersOfType" | "listServices"; value: string }
  | { case: undefined };
type Answer = { case: string | undefined; value?: unknown };

describe.each([
  ["v1", ServerReflection],
  ["v1alpha", ServerReflectionV1Alpha],
] as const)("reflection %s", (_version, service) => {
  async function ask(...questions: Question[]): Promise<Answer[]> {
    const requests = (async function* () {
      for (const messageRequest of questions) yield { host: "h", messageRequest };
    })();
    const answers: Answer[] = [];
    for await (const response of createClient(service as typeof ServerReflection, transport).serverReflectionInfo(requests)) {
      expect(response.validHost).toBe("h");
      expect(response.originalRequest?.messageRequest.case).toBe(questions[answers.length]?.case);
      answers.push(response.messageResponse);
    }
    return answers;
  }

  async function filesOf(question: Question): Promise<FileDescriptorProto[]> {
    const [answer] = await ask(question);
    if (answer?.case !== "fileDescriptorResponse") throw new Error(`no files: ${JSON.stringify(answer)}`);
    const { fileDescriptorProto } = answer.value as { fileDescriptorProto: Uint8Array[] };
    return fileDescriptorProto.map((bytes) => fromBinary(FileDescriptorProtoSchema, bytes));
  }

  test("lists every served service, itself included", async () => {
    const [answer] = await ask({ case: "listServices", value: "*" });
    expect(answer?.value).toMatchObject({
      service: [
        { name: "brain.v1.HostService" },
        { name: "brain.v1.SessionService" },
        { name: "brain.v1.ToolCallService" },
        { name: "grpc.health.v1.Health" },
        { name: "grpc.reflection.v1.ServerReflection" },
        { name: "grpc.reflection.v1alpha.ServerReflection" },
      ],
    });
  });

  test.each([
    ["brain.v1.ToolCallService", "brain/v1/tool_call_service.proto"],
    ["brain.v1.ToolCallService.CallTool", "brain/v1/tool_call_service.proto"],
    [".brain.v1.CallToolRequest", "brain/v1/tool_call_service.proto"],
    ["brain.v1.CallToolRequest.input_json", "brain/v1/tool_call_service.proto"],
    ["brain.v1.GetToolCallRequest.by", "brain/v1/tool_call_service.proto"],
    ["brain.v1.ToolCallState", "brain/v1/tool_call_service.proto"],
    ["brain.v1.TOOL_CALL_STATE_ENDED", "brain/v1/tool_call_service.proto"],
    ["google.protobuf.Timestamp", "google/protobuf/timestamp.proto"],
    ["google.protobuf.Duration.nanos", "google/protobuf/duration.proto"],
    ["grpc.health.v1.HealthCheckResponse.ServingStatus", "health/v1/health.proto"],
    ["grpc.health.v1.HealthCheckResponse.SERVING", "health/v1/health.proto"],
    ["brain.v1.ErrorReason", "brain/v1/error.proto"],
  ])("finds the file that declares %s, first in an answer that holds all it imports", async (symbol, file) => {
    const files = await filesOf({ case: "fileContainingSymbol", value: symbol });
    expect(files[0]?.name).toBe(file);
    const names = files.map((each) => each.name);
    for (const each of files) for (const dependency of each.dependency) expect(names).toContain(dependency);
    // The set stands by itself: a registry can be built of it.
    expect(createFileRegistry({ $typeName: FileDescriptorSetSchema.typeName, file: [...files].reverse() }).files).toBeDefined();
  });

  test("finds a file by its name", async () => {
    expect((await filesOf({ case: "fileByFilename", value: "brain/v1/outcome.proto" }))[0]?.name).toBe("brain/v1/outcome.proto");
  });

  test("says what it has not, and answers the next question on the same stream", async () => {
    const answers = await ask(
      { case: "fileContainingSymbol", value: "brain.v1.Nothing" },
      { case: "fileByFilename", value: "../../etc/passwd" },
      { case: "fileContainingSymbol", value: "constructor" },
      { case: undefined },
      { case: "listServices", value: "" },
    );
    expect(
      answers.map((answer) => (answer.case === "errorResponse" ? (answer.value as { errorCode: number }).errorCode : answer.case)),
    ).toEqual([5, 5, 5, 3, "listServicesResponse"]);
    expect(answers[0]?.value).toMatchObject({ errorMessage: expect.stringContaining('"brain.v1.Nothing"') });
  });

  test("knows no extensions, of known messages only", async () => {
    const answers = await ask(
      { case: "allExtensionNumbersOfType", value: "brain.v1.Session" },
      { case: "allExtensionNumbersOfType", value: "brain.v1.Nothing" },
    );
    expect(answers[0]).toMatchObject({
      case: "allExtensionNumbersResponse",
      value: { baseTypeName: "brain.v1.Session", extensionNumber: [] },
    });
    expect(answers[1]).toMatchObject({ case: "errorResponse", value: { errorCode: 5 } });
  });
});
