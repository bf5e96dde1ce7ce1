#!/usr/bin/env bash
# Fails when gen/src is not what the .proto files generate, naming the files that differ.
set -euo pipefail
cd "$(dirname "$0")/.."

fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
npx --no-install buf generate --output "$fresh"

# Only *_pb.ts is generated; the rest of gen/src is written by hand.
generated() { (cd "$1" && find . -name '*_pb.ts' | sort); }
differing=0
report() { echo "gen/src/${1#./}: $2" >&2; differing=1; }

while IFS= read -r file; do
  if [ ! -f "gen/src/$file" ]; then
    report "$file" "missing"
  elif ! cmp -s "$fresh/gen/src/$file" "gen/src/$file"; then
    report "$file" "differs from what its .proto generates"
  fi
done < <(generated "$fresh/gen/src")

while IFS= read -r file; do
  if [ ! -f "$fresh/gen/src/$file" ]; then
    report "$file" "generated from a .proto that is gone; delete it"
  fi
done < <(generated gen/src)

for file in "$fresh"/gen/src/brain/v1/*_pb.ts; do
  module="./brain/v1/$(basename "$file" .ts).js"
  if ! grep -qF "\"$module\"" gen/src/index.ts; then
    report index.ts "does not export $module; add the line"
  fi
done

if [ "$differing" -ne 0 ]; then
  echo "gen/src is not what proto/ generates: run npm run generate" >&2
  exit 1
fi
