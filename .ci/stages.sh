# shellcheck shell=bash disable=SC2154 # the variables of lib.sh
# The stages; sourced by .ci/run and .ci/full after lib.sh.

prepare() {
    set -e
    # What the tests and the packages use beyond Rust; each is named where it is used (README, Tests).
    apt-get update -qq
    local wanted="bubblewrap strace git gcc libc6-dev make python3 mandoc lintian rpm rpm2cpio cpio shellcheck"
    wanted="$wanted busybox-static uidmap crun iproute2 curl openssl"
    # tests/network/clients.rs, beside git, node and npm.
    wanted="$wanted python3-pip golang-go default-jdk-headless"
    # tests/orchestrators and tests/vm.
    wanted="$wanted podman catatonit buildah containerd docker.io runc apparmor qemu-system-x86 kmod e2fsprogs"
    wanted="$wanted systemd dbus-user-session tmux"
    # The tests of the server start servers of their own. Without this file, the package would start one, too.
    wanted="$wanted postgresql"
    mkdir -p /etc/postgresql-common
    [ -e /etc/postgresql-common/createcluster.conf ] ||
        echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.conf
    # The tests of the web page of the server: server/tests/server/page_in_chromium.rs.
    wanted="$wanted chromium chromium-driver"
    command -v npm >/dev/null || wanted="$wanted nodejs npm"
    # shellcheck disable=SC2086 # a list of words
    apt-get install -y -qq --no-install-recommends $wanted
    id "$user" >/dev/null 2>&1 || useradd --create-home --shell /bin/sh "$user"
    .ci/install-agent
}

format() { cargo fmt --check; }

# Each debug build is one of the whole workspace, with the server: its crates would otherwise be built a second time with
# other features. Releases are of one program each.
whole=(--locked --workspace)

# Targets that are not of `cargo test`, and so of no group. Beside a group, cargo ignores them.
named=(--test orchestrators --test variants --test dependencies)

lint() {
    set -e
    cargo clippy "${whole[@]}" --lib --bins --examples --tests --benches -- -D warnings
    cargo clippy "${whole[@]}" "${named[@]}" -- -D warnings
    scripts
}

scripts() {
    shellcheck -x .ci/{run,full,lib.sh,stages.sh,install-agent,as-user} benches/compare/run \
        packaging/{build,check,completions} packaging/deb/{postinst,postrm} packaging/deb/server/{postinst,prerm,postrm} \
        tests/vm/{run,kernel,init,guest,machine,cgroups,systemd,service} packaging/container/check server/tests/server/support/postgres.sh
}

# Licences, duplicates, bans and sources of what we depend on, as deny.toml has them.
dependencies() { debug_cargo test "${whole[@]}" --quiet --test dependencies; }

# Each link of a comment leads somewhere, those of private items too.
docs() { RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" cargo doc "${whole[@]}" --no-deps --document-private-items --lib; }

unit() { cargo test "${whole[@]}" --lib; }

# What holds of the sources and documents themselves.
layers() { cargo test "${whole[@]}" --test integration -- layers:: manual:: requirements::; }

# mandoc knows no installed page of ours, and so misses each page that another one names; tests/manual and the
# loop below look after those.
manual() {
    set -e
    local found page
    found=$(mandoc -T lint -W style man/*.[1-9] 2>/dev/null | grep -v 'referenced manual not found' || true)
    if [ -n "$found" ]; then
        echo "$found"
        return 1
    fi
    sed -n 's/^\.Xr \(saggar[a-z-]*\) \([0-9]\).*/\1.\2/p' man/*.[1-9] | sort -u | while read -r page; do
        test -e "man/$page"
    done
}

# Debug builds of the gate. Clippy is the compiler of our crates: it lints what it builds, while `cargo clippy` checks all
# dependencies a second time, for minutes. Releases are of rustc.
linting=(env RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS=-Dwarnings__CLIPPY_HACKERY__)
debug_cargo() { "${linting[@]}" cargo "$@"; }

# All that later stages test with: of each profile once, with all lints.
build() {
    set -e
    debug_cargo build "${whole[@]}" --lib --bins --examples --tests --benches
    debug_cargo build "${whole[@]}" "${named[@]}"
}

release() { cargo build --release --locked; }

# The program under test: the debug build, as with the test command of the README. To build the release takes a third of the
# gate, and its tests would save a tenth of that. .ci/full tests the release, which is what people get.
export SAGGAR_TEST_BINARY=${SAGGAR_TEST_BINARY:-$target/debug/saggar}
under_test() { [ "$SAGGAR_TEST_BINARY" != "$target/release/saggar" ] || release; }

# Most tests wait for processes that they start, so that two for each processor keep it busy.
threads() { export RUST_TEST_THREADS=${RUST_TEST_THREADS:-$(($(nproc) * 2))}; }

# Every test, except the halves of those with two callers that a later stage runs. Skips land in a file; with
# SAGGAR_TEST_ALL=1 a test that skips fails by itself, so this is the second look.
tests_as_root() {
    set -e
    under_test
    threads
    export SAGGAR_TEST_ALL=1 SAGGAR_TEST_SKIPS=$logs/skips-root
    rm -f "$SAGGAR_TEST_SKIPS"
    SAGGAR_CI_SKIP=::as_ordinary_user CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER=$top/.ci/run-tests \
        debug_cargo test "${whole[@]}" --no-fail-fast
    if [ -s "$SAGGAR_TEST_SKIPS" ]; then
        sed 's/^/failed: /' "$SAGGAR_TEST_SKIPS"
        return 1
    fi
}

# Of a test with two callers this stage has the ordinary user; what root has to prepare for it, root starts.
tests_as_user() {
    local prepared status
    under_test
    # Not in a condition: there bash would go on after a command that fails inside the function.
    set +e
    (as_user)
    status=$?
    set -e
    mapfile -t prepared < <(sed -n 's/^SKIPPED \(.*::as_ordinary_user\): this test needs.*/\1/p' "$logs/skips-user" | sort -u)
    if [ ${#prepared[@]} -gt 0 ]; then
        SAGGAR_TEST_ALL=1 .ci/run-tests "$(integration)" --exact "${prepared[@]}" |
            sed 's/[0-9]* filtered out/0 filtered out/' || status=1
    fi
    return "$status"
}

# What is the same for both callers, the stage of root has alone: the page in a browser, our clients, the API on
# PostgreSQL; and of the unit tests the longest that only compute.
same_for_both="page_in_chromium:: typescript_client:: own_python_client:: tests_of_the_api_pass_on cipher::tests::
    plan::container::seccomp:: seccomp::tests::properties:: git_index::tests:: tests::hostile:: core::tests:: tests::random::"

# The ordinary user runs the test binaries themselves, and needs no Rust for that. It gets a copy of the tree that it owns,
# at the tree's own path (.ci/as-user). Tests that need root skip there, and ran in another stage; any other skip is a
# failure.
as_user() {
    set -e
    local binary skips reasons status=0
    threads
    # Not local: the trap looks at it when the function is over.
    place=$(mktemp -d /var/tmp/saggar-ci-XXXXXX)
    trap 'rm -rf "$place"' EXIT
    chmod 755 "$place"
    git archive --format=tar HEAD | tar -x -C "$place"
    debug_cargo test "${whole[@]}" --no-run --message-format=json 2>/dev/null | .ci/test-binaries >"$place/binaries"
    test -s "$place/binaries"
    mkdir -p "$place/target/debug/"{deps,examples} "$place/target/release" "$place/target/tmp"
    cp -p "$target/debug/"{saggar,saggar-server} "$place/target/debug/"
    cp -p "$target/debug/examples/"{embed,conversation} "$place/target/debug/examples/"
    [ "$SAGGAR_TEST_BINARY" = "$target/debug/saggar" ] || cp -p "$SAGGAR_TEST_BINARY" "$place/target/release/"
    xargs -d '\n' cp -pt "$place/target/debug/deps" <"$place/binaries"
    if [ -d "$target/agent" ]; then
        cp -a "$target/agent" "$place/target/agent"
    fi
    chown -R "$user:" "$place"
    skips=$top/target/skips
    while read -r binary; do
        SAGGAR_TEST_SKIPS=$skips .ci/as-user "$place" env "SAGGAR_CI_SKIP=$same_for_both" \
            .ci/run-tests "$binary" </dev/null || status=1
    done <"$place/binaries"
    : >"$logs/skips-user"
    if [ -s "$place/target/skips" ]; then
        cp "$place/target/skips" "$logs/skips-user"
        echo "needs root: $(wc -l <"$logs/skips-user") tests"
        reasons=$(sed '/this test needs to be started as root/d; s/^/failed: /' "$logs/skips-user")
        if [ -n "$reasons" ]; then
            echo "$reasons"
            status=1
        fi
    fi
    return "$status"
}

# The ways of the orchestrators that differ most in what they ask of a runtime.
short_list=(exit_status stdin missing_program exec_stdin exec_terminal kill_with_a_signal death_by_signal pause memory
    out_of_memory update remove_running twenty_at_once sandbox_inside agent_pod server_pods)

# The callers of an OCI runtime on this machine, two at a time. What runc cannot do here either, such as limits of
# rootless containers on cgroup v1, is left to the guests. Arguments are names of scenarios.
orchestrate() {
    set -e
    under_test
    local binary caller name status=0 skips=$logs/skips-orchestrators
    rm -f "$skips" "$logs"/callers-*
    binary=$(debug_cargo build "${whole[@]}" --test orchestrators --message-format=json 2>/dev/null |
        .ci/test-binaries orchestrators)
    # shellcheck disable=SC2016 # expanded by the inner shell
    for caller in docker:: containerd:: cri:: buildah_as_root:: buildah_as_ordinary_user:: podman_as_root:: \
        podman_as_ordinary_user::; do
        if [ $# -eq 0 ]; then
            echo "$caller"
        else
            printf "$caller%s " "$@"
            echo
        fi
    done | SAGGAR_TEST_SKIPS=$skips xargs -P 2 -I {} \
        bash -c 'log=$(mktemp "$1/callers-XXXXXX") && .ci/run-tests "$0" $2 >"$log" 2>&1' "$binary" "$logs" {} ||
        status=1
    # Each ran a part of all: the sums are those of the parts.
    for name in "$logs"/callers-*; do
        sed 's/[0-9]* filtered out/0 filtered out/' "$name"
    done
    if [ -s "$skips" ]; then
        echo "needs guest: $(wc -l <"$skips") scenarios"
    fi
    return "$status"
}

orchestrators() { orchestrate "${short_list[@]}"; }

orchestrators_all() { orchestrate; }

# Runs guests, two at a time since each has one processor to itself: a line of arguments of tests/vm/run for each on
# standard input, the longest first.
run_guests() {
    set -e
    under_test </dev/null
    build </dev/null
    # shellcheck disable=SC2016 # expanded by the inner shell
    xargs -P 2 -d '\n' -I {} bash -c '
        said=$(CARGO="$2 cargo" tests/vm/run --env "SAGGAR_TEST_BINARY=$SAGGAR_TEST_BINARY" $1 2>&1) && status=0 || status=1
        exec 9>"$0/guest-lock"
        flock 9
        echo "$said"
        echo "== guest $1 took $SECONDS s"
        exit "$status"
    ' "$logs" {} "${linting[*]}"
}

# These tests have the cgroup of the run to themselves. The modules by name: `cgroup::` is in other names, too.
own_cgroup="cgroup::leaves:: cgroup::limits:: cgroup::processes:: cgroup::swept::"

# What no machine with another cgroup layout can show: limits that hold under cgroup v2.
guest() {
    set -e
    tests/vm/kernel 6.12 target/vm >/dev/null
    run_guests <<<"--kernel 6.12 --timeout 1800 $own_cgroup kc_06_forks"
}

# What this machine cannot show: cgroup v2, systemd, AppArmor, older kernels, machines that lack something, and there
# each caller's ways once more.
guests() {
    set -e
    local kernel caller
    for kernel in 6.1 6.12; do
        tests/vm/kernel "$kernel" target/vm >/dev/null
    done
    {
        for kernel in 6.1 6.12; do
            for caller in docker containerd cri podman_as_root buildah_as_root; do
                printf -- '--kernel %s --timeout 1800 --as root --test orchestrators' "$kernel"
                printf " $caller::%s" "${short_list[@]}"
                echo
            done
            printf -- '--kernel %s --timeout 1800 --as user --test orchestrators' "$kernel"
            printf ' ordinary_user::%s' "${short_list[@]}"
            echo
            echo "--kernel $kernel --timeout 1800 $own_cgroup"
            echo "--kernel $kernel --timeout 1800 kc_06_forks"
            echo "--kernel $kernel --timeout 1800 --test variants given_"
            echo "--kernel $kernel --timeout 1800 --variant systemd --test variants systemd"
            echo "--kernel $kernel --timeout 1800 --variant systemd -- tests/vm/service"
            echo "--kernel $kernel --timeout 3600 --as root --test variants places::"
            echo "--kernel $kernel --timeout 3600 --as root --variant systemd --test variants places::"
            echo "--kernel $kernel --timeout 1800 --as root --variant hybrid --test variants places::"
        done
        echo "--kernel 6.1 --timeout 1800 --as root --variant cgroup-v1 --test variants places::"
        echo "--kernel 6.12 --timeout 1800 --test variants labels::"
        echo "--kernel 6.1 --timeout 1800 --test variants --variant no-userns no_userns"
        echo "--kernel 6.1 --timeout 1800 --test variants --variant no-landlock no_landlock"
        echo "--kernel 6.1 --timeout 1800 --test variants --variant cgroup-v1 cgroup_v1"
    } | run_guests
}

guests_whole() {
    local kernel caller
    for kernel in 6.1 6.12; do
        echo "--kernel $kernel --timeout 7200 --test orchestrators"
        for caller in root user; do
            echo "--kernel $kernel --timeout 5400 --as $caller oci:: isolation:: kill::"
        done
    done | run_guests
}

# The first command of the README and its pair run, with the program under test: as root in this tree, which is a clone, and
# as the ordinary user. The whole command, with its build, is the stage `first-build` of .ci/full.
first_command() {
    set -e
    place=$(mktemp -d /var/tmp/saggar-ci-XXXXXX)
    trap 'rm -rf "$place"' EXIT
    chmod 755 "$place"
    # The session is not to stay on the machine.
    SAGGAR_STATE_DIR=$place/state "$SAGGAR_TEST_BINARY" agent examples/hello "hi" | tee "$place/said"
    grep -q Hello "$place/said"
    SAGGAR_STATE_DIR=$place/state "$SAGGAR_TEST_BINARY" pair run examples/pair --task "hi" --root "$place/runs" |
        tee "$place/said"
    grep -q '"result":"approved"' "$place/said"

    mkdir "$place/tree"
    git archive --format=tar HEAD | tar -x -C "$place/tree"
    install -m 755 "$SAGGAR_TEST_BINARY" "$place/saggar"
    chown -R "$user:" "$place/tree"
    cd "$place/tree"
    as_ordinary_user() {
        setpriv --reuid "$user" --regid "$user" --clear-groups env -i \
            PATH=/usr/local/bin:/usr/bin:/bin HOME="/home/$user" USER="$user" "$@"
    }
    as_ordinary_user "$place/saggar" agent examples/hello "hi" | tee "$place/said"
    grep -q Hello "$place/said"
    as_ordinary_user "$place/saggar" pair run examples/pair --task "hi" --root "$place/tree/runs" | tee "$place/said"
    grep -q '"result":"approved"' "$place/said"
}

# The first command of the README, as it is there. The session is not to stay on the machine.
first_build() { SAGGAR_STATE_DIR=$(mktemp -d) cargo run --release --locked -- agent examples/hello "hi" | grep Hello; }

# What builds the package: packaging/build installs it below target.
package_tools() { SAGGAR_PACKAGES=deb packaging/build tools; }

# One package with the binary that is there: what packaging does, and where each file lands.
package() {
    set -e
    export SAGGAR_PACKAGES=deb SAGGAR_PROGRAMS=saggar
    strip -o "$target/ci/saggar" "$SAGGAR_TEST_BINARY"
    SAGGAR_BINARY=$target/ci/saggar packaging/build
    packaging/check
}

# As they are released, from a build of their own.
packages() {
    set -e
    packaging/build
    packaging/check
}

# The image of the server, from the programs of the packages, and what its container can do.
container() { packaging/container/check target/packages/stage/saggar target/packages/stage/server/saggar-server; }

# The same sources and the same time give the same packages.
packages_again() {
    set -e
    local before after
    before=$(cd target/packages && sha256sum ./*.deb ./*.rpm)
    rm -rf target/x86_64-unknown-linux-gnu
    packaging/build
    after=$(cd target/packages && sha256sum ./*.deb ./*.rpm)
    diff <(echo "$before") <(echo "$after")
}

# The long form of each test that has one.
loops() {
    set -e
    under_test
    export SAGGAR_TEST_LONG=1 SAGGAR_TEST_ALL=1
    debug_cargo test "${whole[@]}" --lib
    .ci/run-tests "$(integration)" kill:: races:: bridge::killed bridge::replay_killed \
        bridge::leaves cgroup::leaves:: \
        session::many quarantine::battery session::killed oci::killed
    local binary
    binary=$(server_tests)
    # Their directory is that of the package.
    (cd server && ../.ci/run-tests "$binary" random_kills:: postgres::)
}

# What holds a measurement to a bound. Each message of a mailbox is synced, so the disk of the machine is in it. The server
# runs the release of saggar beside it.
benches() {
    set -e
    cargo bench --locked -p saggar-mailbox --bench send
    release
    cargo bench --locked -p saggar-server --bench server
}

rounds() {
    local round threads status=0
    under_test
    export SAGGAR_TEST_ALL=1
    for round in $(seq "${SAGGAR_FULL_ROUNDS:-10}"); do
        # Tests in parallel in one round and one by one in the next: each finds what the other hides.
        threads=$((round % 2 == 0 ? 1 : $(nproc) * 2))
        echo "== round $round, $threads threads"
        CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER=$top/.ci/run-tests \
            debug_cargo test "${whole[@]}" --no-fail-fast -- --test-threads="$threads" || status=1
    done
    return "$status"
}

fuzz() {
    local name status=0
    for name in $(cargo +nightly fuzz list); do
        echo "== fuzz $name"
        cargo +nightly fuzz run "$name" -- -max_total_time="${SAGGAR_FUZZ_SECONDS:-600}" -print_final_stats=1 || status=1
    done
    return "$status"
}

# The path of the tests of the server.
server_tests() {
    debug_cargo test "${whole[@]}" --no-run --test server --message-format=json 2>/dev/null | .ci/test-binaries server
}

# The path of the integration tests.
integration() {
    debug_cargo test "${whole[@]}" --no-run --test integration --message-format=json 2>/dev/null | .ci/test-binaries integration
}
