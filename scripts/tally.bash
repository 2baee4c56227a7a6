# Sourced by scripts/test and .ci/run: runs checks and adds up what passed and failed.

passed=0
failed=0
failures=()

passed=0
failed=0
failures=()

# The words of what failed, for the end of the output. A script that another one runs adds to the same file.
if [ -z "${FAILURE_WORDS:-}" ]; then
  FAILURE_WORDS=$(mktemp)
  export FAILURE_WORDS
  words_owner=$$
fi

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
  local log status=0
  heading "$name"
  log=$(mktemp)
  "$@" </dev/null 2>&1 | tee "$log" || status=${PIPESTATUS[0]}
  if [ "$status" -eq 0 ]; then
    count "$name" 1 0
  else
    { echo "== $name: exit code $status"; tail -n 20 "$log"; } >>"$FAILURE_WORDS"
    count "$name" 0 1
  fi
  rm -f "$log"
}

# What a log of GoogleTest says of each test that failed, or of the one under way where the program died.
failed_tests() {
  awk '/^\[ RUN      \]/ { text = ""; open = 1 }
       open { text = text $0 "\n" }
       /^\[       OK \]|^\[  SKIPPED \]/ { open = 0 }
       /^\[  FAILED  \].*\([0-9]+ ms\)$/ { printf "%s", text; open = 0 }
       END { if (open) printf "%s", text }' "$1" | tail -n 60
}

# A GoogleTest program counts test by test, and runs in as many parts side by side as there are cores: most tests use
# one. A crash, a timeout or a part that ended without its last line is one more failure.
check_gtest() {  # check_gtest NAME PROGRAM [ARGUMENT...]
  local name=$1 folder shards good=0 bad=0 skipped=0 shard log number running=()
  shift
  folder=$(mktemp -d)
  shards=$(nproc)
  for ((shard = 0; shard < shards; ++shard)); do
    GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$shard \
      timeout "${GTEST_TIMEOUT:-1200}" "$@" >"$folder/$shard" 2>&1 </dev/null &
    running+=($!)
  done
  last_number() { number=$(sed -nE "s/$1/\1/p" "$log" | tail -n 1); number=${number:-0}; }
  for ((shard = 0; shard < shards; ++shard)); do
    local status=0 failed_here ended
    wait "${running[shard]}" || status=$?
    log=$folder/$shard
    last_number '^\[  PASSED  \] ([0-9]+) tests?\.$'
    good=$((good + number))
    last_number '^\[  SKIPPED \] ([0-9]+) tests?, listed below:$'
    skipped=$((skipped + number))
    last_number '^ *([0-9]+) FAILED TESTS?$'
    failed_here=$number
    ended=$(grep -c '^\[==========\] .* ran\.' "$log" || true)
    if [ "$failed_here" -eq 0 ] && { [ "$status" -ne 0 ] || [ "$ended" -eq 0 ]; }; then failed_here=1; fi
    bad=$((bad + failed_here))
    if [ "$failed_here" -gt 0 ]; then
      echo "    exit code $status"
      tail -n 80 "$log" | sed 's/^/    /'
      { echo "== $name: exit code $status"; failed_tests "$log"; } >>"$FAILURE_WORDS"
    fi
  done
  if [ $((good + bad + skipped)) -eq 0 ]; then bad=1; fi
  printf '%-28s %5d passed %3d failed %3d skipped\n' "$name" "$good" "$bad" "$skipped"
  cat "$folder"/* | sed -nE '/: Skipped$/{n;s/^/    skipped: /p}' | sort | uniq | head -n 5
  count "$name" "$good" "$bad"
  rm -rf "$folder"
}

# A script that ends with the line "N passed, N failed[, N skipped]"; without that line it is one failure.
check_closing_line() {  # check_closing_line NAME SECONDS COMMAND...
  local name=$1 seconds=$2 log status=0 words_before
  shift 2
  heading "$name"
  log=$(mktemp)
  words_before=$(wc -c <"$FAILURE_WORDS")
  timeout --kill-after=30 "$seconds" "$@" </dev/null 2>&1 | tee "$log" || status=${PIPESTATUS[0]}
  if [[ $(tail -n 1 "$log") =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed ]]; then
    local good=${BASH_REMATCH[1]} bad=${BASH_REMATCH[2]}
    if [ "$status" -ne 0 ] && [ "$bad" -eq 0 ]; then bad=1; fi
    if [ "$bad" -gt 0 ] && [ "$words_before" -eq "$(wc -c <"$FAILURE_WORDS")" ]; then
      { echo "== $name: exit code $status"; grep -iE '^ *(fail|error)' "$log" | tail -n 20; } >>"$FAILURE_WORDS"
    fi
    count "$name" "$good" "$bad"
  else
    echo "$name: no closing line, exit code $status" | tee -a "$FAILURE_WORDS"
    count "$name" 0 1
  fi
  rm -f "$log"
}

# Prints what failed and the closing line; exits with 0 only if something passed and nothing failed.
finish() {
  echo
  if [ "${words_owner:-}" = $$ ]; then
    cat "$FAILURE_WORDS"
    rm -f "$FAILURE_WORDS"
  fi
  [ ${#failures[@]} -eq 0 ] || printf 'failed: %s\n' "${failures[@]}"
  echo "$passed passed, $failed failed"
  [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
  exit
}
