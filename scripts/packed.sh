#!/usr/bin/env bash
# Packs @aexhq/brain and @aexhq/brain-proto, installs them in an empty folder, type-checks the README's example there
# against the packed types, and runs it against the server of this tree.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
work=$(mktemp -d)
server=
stop() {
  [ -z "$server" ] || kill "$server" 2>/dev/null || true
  wait 2>/dev/null || true
  rm -rf "$work"
}
trap stop EXIT

mkdir "$work/packs" "$work/app"
npm pack --silent --pack-destination "$work/packs" -w gen -w sdk >/dev/null
version() { node -p "require('$root/node_modules/$1/package.json').version"; }

cd "$work/app"
cat >package.json <<JSON
{ "name": "app", "private": true, "type": "module" }
JSON
npm install --no-audit --no-fund --silent "$work"/packs/*.tgz "zod@$(version zod)" "typescript@$(version typescript)" "@types/node@$(version @types/node)"
cp "$root/examples/host-tool.ts" .
cat >tsconfig.json <<JSON
{
  "compilerOptions": {
    "target": "es2022", "lib": ["es2022", "esnext.disposable"], "module": "nodenext", "types": ["node"],
    "strict": true, "outDir": "out", "skipLibCheck": true
  },
  "files": ["host-tool.ts"]
}
JSON
npx tsc
echo "the example compiles against the packed types"

touch out.log
node "$root/server/bin/brain.js" serve --listen 127.0.0.1:0 --data-dir data --log-level warn >out.log &
server=$!
url=$(timeout 10 grep -m1 '^brain listening on ' < <(tail -n +1 -f out.log))
BRAIN_URL=${url#brain listening on } node out/host-tool.js | tee answer.txt
grep -q 'The caller saw: ok, error, error, timeout, cancelled' answer.txt
for proto in node_modules/@aexhq/brain-proto/proto/brain/v1/tool_call_service.proto; do [ -f "$proto" ]; done
echo "the packed packages work in an empty folder"
