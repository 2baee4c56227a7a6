# Sourced by scripts/test and .ci/run: runs checks and adds up what passed and failed.

passed=0
failed=0
failures=()

count() {  # count NAME PASSED FAILED
  passed=$((passed + $2))
  failed=$((failed + $3))
  [ "$3" -eq 0 ] || failures+=("$1: $3 failed")
}

heading() { printf '\n== %s\n' "$*"; }

# One command is one check.
check() {  # check NAME COMMAND...
  local name=$1
  shift
  heading "$name"
  if "$@" </dev/null; then count "$name" 1 0; else count "$name" 0 1; fi
}

# A GoogleTest program counts test by test; a crash, a timeout or a program that ran nothing is one more failure.
check_gtest() {  # check_gtest NAME PROGRAM [ARGUMENT...]
  local name=$1 log good bad skipped status=0
  shift
  log=$(mktemp)
  timeout "${GTEST_TIMEOUT:-1200}" "$@" >"$log" 2>&1 </dev/null || status=$?
  last_number() { sed -nE "s/$1/\1/p" "$log" | tail -n 1; }
  good=$(last_number '^\[  PASSED  \] ([0-9]+) tests?\.$')
  bad=$(last_number '^ *([0-9]+) FAILED TESTS?$')
  skipped=$(last_number '^\[  SKIPPED \] ([0-9]+) tests?, listed below:$')
  good=${good:-0} bad=${bad:-0} skipped=${skipped:-0}
  if [ "$bad" -eq 0 ] && { [ "$status" -ne 0 ] || [ $((good + skipped)) -eq 0 ]; }; then bad=1; fi
  printf '%-28s %5d passed %3d failed %3d skipped\n' "$name" "$good" "$bad" "$skipped"
  sed -nE '/: Skipped$/{n;s/^/    skipped: /p}' "$log" | sort | uniq | head -n 5
  [ "$bad" -eq 0 ] || { echo "    exit code $status"; tail -n 80 "$log" | sed 's/^/    /'; }
  count "$name" "$good" "$bad"
  rm -f "$log"
}

# A script that ends with the line "N passed, N failed[, N skipped]"; without that line it is one failure.
check_closing_line() {  # check_closing_line NAME SECONDS COMMAND...
  local name=$1 seconds=$2 log status=0
  shift 2
  heading "$name"
  log=$(mktemp)
  timeout --kill-after=30 "$seconds" "$@" </dev/null 2>&1 | tee "$log" || status=${PIPESTATUS[0]}
  if [[ $(tail -n 1 "$log") =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed ]]; then
    local good=${BASH_REMATCH[1]} bad=${BASH_REMATCH[2]}
    if [ "$status" -ne 0 ] && [ "$bad" -eq 0 ]; then bad=1; fi
    count "$name" "$good" "$bad"
  else
    echo "$name: no closing line, exit code $status"
    count "$name" 0 1
  fi
  rm -f "$log"
}

# Prints what failed and the closing line; exits with 0 only if something passed and nothing failed.
finish() {
  echo
  [ ${#failures[@]} -eq 0 ] || printf 'failed: %s\n' "${failures[@]}"
  echo "$passed passed, $failed failed"
  [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
  exit
}
