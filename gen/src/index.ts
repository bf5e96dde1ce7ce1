// All of brain.v1 in one import. Written by hand: a new file under proto/brain/v1 needs its line here.
export * from "./brain/v1/command_pb.js";
export * from "./brain/v1/environment_pb.js";
export * from "./brain/v1/error_pb.js";
export * from "./brain/v1/host_service_pb.js";
export * from "./brain/v1/outcome_pb.js";
export * from "./brain/v1/record_pb.js";
export * from "./brain/v1/session_pb.js";
export * from "./brain/v1/session_service_pb.js";
export * from "./brain/v1/tool_call_service_pb.js";
export * from "./brain/v1/tool_pb.js";
