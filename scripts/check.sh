#!/usr/bin/env bash
# Everything that can be said about the code without running it, in the order in which it is likely to fail.
set -euo pipefail
cd "$(dirname "$0")/.."

step() { printf '%s\n' "-- $1"; shift; "$@"; }

step "buf lint" npx buf lint
step "buf format (mend with: npm run format)" npx buf format -d --exit-code proto
step "generated code" bash scripts/check-generated.sh
step "biome (mend with: npm run format)" npx biome check --error-on-warnings .
step "build" npm run --silent build
step "types" npx tsc --noEmit -p .
