# shellcheck shell=bash
# What the stages of .ci/run and .ci/full share; sourced by both. A stage is a function with the name of the stage, `-`
# replaced by `_`.
#
# Each stage prints how long it took. The end prints these times again, the twenty slowest tests, the flaky ones and every
# failure. The last line is "N passed, N failed": the sum of all tests, checks and stages. It is also in target/ci/result,
# after the commit.

# A shell starts what it puts in the background with signals ignored, and that is inherited: tests send signals.
if [ -z "${SAGGAR_CI_SIGNALS:-}" ]; then
    SAGGAR_CI_SIGNALS=default exec env --default-signal=HUP,INT,QUIT,TERM bash "$0" "$@"
fi
exec </dev/null

export CI=true CARGO_TERM_COLOR=never DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
export SAGGAR_TEST_LONG=${SAGGAR_TEST_LONG:-0}
top=$(cd "$(dirname "$0")/.." && pwd)
cd "$top" || exit 1
target=$top/target
export CARGO_TARGET_DIR=$target
logs=$target/ci
user=saggar-test
export SAGGAR_TEST_USER=$user
passed=0
failed=0
flaky=0
times=()
ran=()
declare -A beside=()
# So many tests may fail once and pass when they run alone. More are a defect of the whole.
most_flaky=3
mkdir -p "$logs"

if [ "$(id -u)" != 0 ]; then
    echo "$0: needs root: it installs packages and tests both callers" >&2
    echo "0 passed, 1 failed"
    exit 1
fi

# Starts a stage beside those that follow; `stage NAME` waits for it. Compilers and tests leave each other a processor often
# enough that it saves minutes.
begin() {
    ("${1//-/_}") >"$logs/$1.log" 2>&1 &
    beside[$1]=$!
}

# One stage. Its output is shown and kept; test results in it are counted, and the stage itself counts as one.
stage() {
    local name=$1 log begun status=0
    log=$logs/$name.log
    begun=$SECONDS
    echo "== $name"
    # Not in a condition: there bash would go on after a command that fails inside the function.
    set +e
    if [ -n "${beside[$name]:-}" ]; then
        wait "${beside[$name]}"
        status=$?
        cat "$log"
    else
        ("${name//-/_}") 2>&1 | tee "$log"
        status=${PIPESTATUS[0]}
    fi
    set -e
    count "$log"
    if [ "$status" -eq 0 ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "== $name FAILED with status $status"
        report_failure "$name" "$status" >>"$log"
    fi
    times+=("$((SECONDS - begun)) s $name")
    ran+=("$log")
    echo "== $name took $((SECONDS - begun)) s"
}

# Runs the stages with these names, and reports; `NAME&` begins one. Its status is that of the whole.
stages() {
    local name
    for name in "$@"; do
        case $name in
            *'&') begin "${name%&}" ;;
            *) stage "$name" ;;
        esac
    done
    echo "== the slowest tests"
    slowest
    echo "== stages"
    printf '%s\n' "${times[@]}"
    echo "all stages took $SECONDS s"
    sed -n '/^\(flaky\|failed\): /p' "${ran[@]}"
    if [ "$flaky" -gt "$most_flaky" ]; then
        failed=$((failed + 1))
        echo "$flaky flaky tests: more than $most_flaky fail the gate"
    fi
    echo "$(git rev-parse HEAD) $passed passed, $failed failed, $flaky flaky, $SECONDS s: $*" >"$logs/result.new"
    mv "$logs/result.new" "$logs/result"
    echo "$passed passed, $failed failed"
    [ "$failed" -eq 0 ]
}

# A failed stage as a line of the report at the end, with its last words if no line of its own says what failed. Reads the
# log while it appends to it: so the words are read first.
report_failure() {
    local words=
    if ! grep -q '^failed: ' "$logs/$1.log"; then
        words=$(tail -n 5 "$logs/$1.log" | tr '\n' '|')
    fi
    echo "failed: stage $1 (status $2)${words:+: $words}"
}

# "test NAME ... ok <1.234s>" of .ci/run-tests, of all stages that ran. Not `head`: it ends before it has read all that sort
# writes, and the pipe that breaks then would be the end of this script.
slowest() {
    sed -n 's/^test \(.*\) \.\.\. [a-z]* <\([0-9.]*\)s>$/\2 s \1/p' "${ran[@]}" | sort -rn | sed -n 1,20p
}

# Adds up cargo's "test result: … N passed; N failed" and the "packages: N passed, N failed" of packaging/check.
count() {
    local sums
    sums=$(awk '
        # Some tests run themselves again in a process of their own: only whole runs are counted.
        /^test result: .* 0 filtered out/ {
            for (i = 2; i <= NF; i++) {
                if ($i ~ /^passed/) p += $(i - 1)
                if ($i ~ /^failed/) f += $(i - 1)
                # An ignored test proves nothing.
                if ($i ~ /^ignored/) f += $(i - 1)
            }
        }
        /^packages: / { p += $2; f += $4 }
        # "guest KERNEL VARIANT: N passed, N failed" of tests/vm/run.
        /^guest .* passed, / { p += $4; f += $6 }
        # A test that skips ends as passed, and is not to be counted twice.
        /^needs (root|guest): / { p -= $3 }
        /^flaky: / { again++ }
        END { print p + 0, f + 0, again + 0 }
    ' "$1")
    read -r -a sums <<<"$sums"
    passed=$((passed + sums[0]))
    failed=$((failed + sums[1]))
    flaky=$((flaky + sums[2]))
}
