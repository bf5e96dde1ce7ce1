import { ServerReflection } from "@aexhq/brain-proto/grpc/reflection/v1/reflection_pb";
import { ServerReflection as ServerReflectionV1Alpha } from "@aexhq/brain-proto/grpc/reflection/v1alpha/reflection_pb";
import { type DescExtension, type DescFile, type DescMessage, type DescService, toBinary } from "@bufbuild/protobuf";
import { nestedTypes } from "@bufbuild/protobuf/reflect";
import { FileDescriptorProtoSchema } from "@bufbuild/protobuf/wkt";
import type { ConnectRouter } from "@connectrpc/connect";
import { quote } from "../core/names.js";

/** `grpc::StatusCode`, which the reflection protocol speaks whatever the transport does. */
const INVALID_ARGUMENT = 3;
const NOT_FOUND = 5;

/** The question of either version: they differ in their package name only. */
interface Question {
  readonly messageRequest:
    | { readonly case: "fileByFilename" | "fileContainingSymbol" | "allExtensionNumbersOfType" | "listServices"; readonly value: string }
    | { readonly case: "fileContainingExtension"; readonly value: { readonly containingType: string; readonly extensionNumber: number } }
    | { readonly case: undefined; readonly value?: undefined };
}

type Answer =
  | { case: "fileDescriptorResponse"; value: { fileDescriptorProto: Uint8Array[] } }
  | { case: "allExtensionNumbersResponse"; value: { baseTypeName: string; extensionNumber: number[] } }
  | { case: "listServicesResponse"; value: { service: { name: string }[] } }
  | { case: "errorResponse"; value: { errorCode: number; errorMessage: string } };

/**
 * Serves both versions of gRPC reflection over exactly `services`, so that `grpcurl HOST list` needs no files.
 * `details` are messages that no service's file imports, because they travel in errors.
 */
export function registerReflection(router: ConnectRouter, services: readonly DescService[], details: readonly DescMessage[]): void {
  const answer = createReflection(services, details);
  router.service(ServerReflection, {
    async *serverReflectionInfo(requests) {
      for await (const originalRequest of requests) {
        yield { validHost: originalRequest.host, originalRequest, messageResponse: answer(originalRequest) };
      }
    },
  });
  router.service(ServerReflectionV1Alpha, {
    async *serverReflectionInfo(requests) {
      for await (const originalRequest of requests) {
        yield { validHost: originalRequest.host, originalRequest, messageResponse: answer(originalRequest) };
      }
    },
  });
}

function createReflection(services: readonly DescService[], details: readonly DescMessage[]): (question: Question) => Answer {
  const files = new Map<string, DescFile>();
  const fileOfSymbol = new Map<string, DescFile>();
  const messages = new Map<string, DescMessage>();
  const extensions: DescExtension[] = [];

  const index = (file: DescFile): void => {
    if (files.has(file.proto.name)) return;
    files.set(file.proto.name, file);
    for (const type of nestedTypes(file)) {
      fileOfSymbol.set(type.typeName, file);
      if (type.kind === "message") {
        messages.set(type.typeName, type);
        for (const field of type.fields) fileOfSymbol.set(`${type.typeName}.${field.name}`, file);
        for (const oneof of type.oneofs) fileOfSymbol.set(`${type.typeName}.${oneof.name}`, file);
      } else if (type.kind === "enum") {
        // Protobuf scopes the values of an enum beside it, not in it.
        const scope = type.typeName.slice(0, type.typeName.length - type.name.length);
        for (const value of type.values) fileOfSymbol.set(`${scope}${value.name}`, file);
      } else if (type.kind === "service") {
        for (const method of type.methods) fileOfSymbol.set(`${type.typeName}.${method.name}`, file);
      } else {
        extensions.push(type);
      }
    }
    for (const dependency of file.dependencies) index(dependency);
  };
  for (const { file } of [...services, ...details]) index(file);
  const serviceNames = services.map((service) => service.typeName).sort();

  const withDependencies = (file: DescFile): Answer => {
    const wanted = new Set<DescFile>();
    const collect = (next: DescFile): void => {
      if (wanted.has(next)) return;
      wanted.add(next);
      for (const dependency of next.dependencies) collect(dependency);
    };
    collect(file);
    return {
      case: "fileDescriptorResponse",
      value: { fileDescriptorProto: [...wanted].map((each) => toBinary(FileDescriptorProtoSchema, each.proto)) },
    };
  };
  const fileOr = (file: DescFile | undefined, missing: string): Answer =>
    file === undefined ? errorAnswer(NOT_FOUND, missing) : withDependencies(file);

  return ({ messageRequest: question }) => {
    switch (question.case) {
      case "listServices":
        return { case: "listServicesResponse", value: { service: serviceNames.map((name) => ({ name })) } };
      case "fileByFilename":
        return fileOr(
          files.get(question.value),
          `this server has no file ${quote(question.value)}; ask for the file of a service that it lists`,
        );
      case "fileContainingSymbol":
        // Some clients write the leading dot of a fully qualified name.
        return fileOr(
          fileOfSymbol.get(question.value.replace(/^\./, "")),
          `this server has no symbol ${quote(question.value)}; list its services to see their names`,
        );
      case "fileContainingExtension": {
        const { containingType, extensionNumber } = question.value;
        const found = extensions.find((each) => each.extendee.typeName === containingType && each.number === extensionNumber);
        return fileOr(found?.file, `this server knows no extension ${extensionNumber} of ${quote(containingType)}`);
      }
      case "allExtensionNumbersOfType": {
        const message = messages.get(question.value);
        if (message === undefined) return errorAnswer(NOT_FOUND, `this server has no message ${quote(question.value)}`);
        const extensionNumber = extensions.filter((each) => each.extendee === message).map((each) => each.number);
        return { case: "allExtensionNumbersResponse", value: { baseTypeName: message.typeName, extensionNumber } };
      }
      case undefined:
        return errorAnswer(INVALID_ARGUMENT, "the reflection request asks for nothing; set one field of message_request");
      default:
        question satisfies never;
        return errorAnswer(INVALID_ARGUMENT, "the reflection request asks for something this server does not know");
    }
  };
}

function errorAnswer(errorCode: number, errorMessage: string): Answer {
  return { case: "errorResponse", value: { errorCode, errorMessage } };
}
