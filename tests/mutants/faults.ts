import type { Fault } from "./fault.js";
import { ENVIRONMENT_FAULTS, SDK_FAULTS } from "./host-faults.js";
import { RUNTIME_FAULTS } from "./runtime-faults.js";

export const FAULTS: readonly Fault[] = [...RUNTIME_FAULTS, ...ENVIRONMENT_FAULTS, ...SDK_FAULTS];
