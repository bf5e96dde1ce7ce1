#!/usr/bin/env bash
# Runs the README's grpcurl lines, as they stand there, against a real server with a host behind it.
set -euo pipefail
cd "$(dirname "$0")/.."

bin="$PWD/.cache/bin"
if [ ! -x "$bin/grpcurl" ]; then
  # Pinned: a newer one may ask for a newer Go than the one that is here.
  GOBIN="$bin" go install github.com/fullstorydev/grpcurl/cmd/grpcurl@v1.9.3
fi

work=$(mktemp -d)
pids=()
stop() {
  local pid
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  rm -rf "$work"
}
trap stop EXIT

# Waits until a line of the file matches, for at most ten seconds, and prints it.
line_of() {
  local line
  if ! line=$(timeout 10 grep -m1 -E "$2" < <(tail -n +1 -f "$1")); then
    echo "no line like '$2' came into $1:" >&2
    cat "$1" >&2
    return 1
  fi
  printf '%s\n' "$line"
}

touch "$work/server" "$work/host"
env -u BRAIN_API_TOKEN node server/dist/main.js serve --listen 127.0.0.1:0 --data-dir "$work/data" --log-level warn >"$work/server" &
pids+=($!)
url=$(line_of "$work/server" '^brain listening on ')
url=${url#brain listening on }

BRAIN_URL=$url node --import tsx examples/serve.ts >"$work/host" &
pids+=($!)
SESSION=$(line_of "$work/host" '^session ')
export SESSION=${SESSION#session }

lines=0
while IFS= read -r line; do
  lines=$((lines + 1))
  echo "\$ $line"
  answer=$(PATH="$bin:$PATH" bash -c "${line//127.0.0.1:8080/${url#http://}}")
  printf '%s\n' "$answer" | head -20
  case $line in
    *CallTool*) grep -q '"valueJson": "{\\"value\\":\\"item:7\\"}"' <<<"$answer" || { echo "the call did not return item:7" >&2; exit 1; } ;;
    *Health*) grep -q SERVING <<<"$answer" ;;
    *ListRecords*) grep -q toolCallEnded <<<"$answer" ;;
  esac
done < <(grep -E '^grpcurl ' README.md)
[ "$lines" -ge 5 ] || { echo "the README has $lines grpcurl lines; at least 5 were expected" >&2; exit 1; }

echo "\$ curl (the README's line)"
line=$(grep -E '^curl ' README.md)
bash -c "${line//127.0.0.1:8080/${url#http://}} -sS --fail" | grep -q sessions
echo "$lines grpcurl lines of the README work"
