# Functions for the commands of all chapters.

# until COMMAND [TEXT]: waits until the command succeeds and prints the text.
until_() {
  local deadline=$((SECONDS + 60)) seen
  while :; do
    if seen=$(eval "$1" 2>&1) && [[ $seen == *"${2-}"* ]]; then return 0; fi
    if ((SECONDS > deadline)); then printf 'waited in vain: %s\n%s\n' "$1" "$seen" >&2; return 1; fi
    sleep 0.1
  done
}

# forward TARGET PORTS COMMAND: runs the command while a port is forwarded. LOCAL is the local port.
forward() {
  local written
  written=$(mktemp)
  timeout 30 kubectl port-forward "$1" "$2" --address 127.0.0.1 >"$written" 2>&1 &
  local pid=$!
  until_ "cat $written" Forwarding || return 1
  LOCAL=$(sed -nE '1s/.*:([0-9]+) -> .*/\1/p' "$written")
  eval "$3"
  kill "$pid" 2>/dev/null || true
  wait "$pid" 2>/dev/null || true
  grep -vE '^(Forwarding|Handling)' "$written"
  rm -f "$written"
}

# builtin_: filters a list of versions, names or resources to the kinds of every cluster, and keeps the header.
builtin_() { grep -E '(^|[ .])([a-z]+\.)*k8s\.io(/|$)|^[a-z]+$|(^| )(v1|apps/v1|autoscaling/v[12]|batch/v1|policy/v1)( |$)|^NAME|\.(apps|autoscaling|batch|policy)$'; }

# by_reason_: sorts the events of a description by reason. kubectl sorts them by the second of their last time, which
# varies for events that repeat every 15 s.
by_reason_() {
  awk 'sorted { print | "sort"; next } /^Events:/ { events = 1 } { print } events && /^ +-/ { sorted = 1; fflush() }'
}
