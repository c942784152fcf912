#!/bin/sh
# Builds bpkfs and runs all of its tests; the last line is "N passed, N failed[, N skipped]".
#
#     sh tests/run.sh [--quick] [--san] [--fuzz SECONDS] [--long] [-k EXPRESSION]
#
#     --san          also a build with AddressSanitizer and UndefinedBehaviorSanitizer, and the
#                    whole suite on it (always so where CI=true)
#     --fuzz SECONDS also a build with clang and libFuzzer (Debian: clang, libclang-rt-14-dev), and
#                    each fuzz target of tests/fuzz run for so long. What it finds stays in
#                    build-fuzz/found/; an input there is tried again by
#                        build-fuzz/tests/fuzz/fuzz_TARGET FILE
#                    and belongs into tests/fuzz/corpus/TARGET/ when it is mended: those are
#                    tests of every run. Where CI=true and there is libFuzzer: 20 seconds
#     --quick        neither of them, even where CI=true
#     --long         also the builds of tests/matrix.sh, in build-matrix/: gcc and clang, debug,
#                    release, without assertions, without the optional parts, with sanitizers; the
#                    tarball; as root with debootstrap, other distributions. It takes ten minutes
#                    or so
#     -k EXPRESSION  of the integration tests only those that match, as pytest takes it
#
# Where CI=true and clang-format is on PATH, the format of the sources is checked too.
# Exit status: 0 if nothing failed, 1 if anything did, 2 usage.
set -u

usage() {
    echo 'usage: sh tests/run.sh [--quick] [--san] [--fuzz SECONDS] [--long] [-k EXPRESSION]' >&2
    exit 2
}

ci=${CI:-false}
sanitize=$([ "$ci" = true ] && echo yes || echo no)
fuzz=$([ "$ci" = true ] && echo 20 || echo 0)
fuzz_asked=no
long=no
expression=
while [ $# -gt 0 ]; do
    case $1 in
    --quick)
        sanitize=no
        fuzz=0
        ;;
    --san) sanitize=yes ;;
    --fuzz)
        [ "${2:-0}" -gt 0 ] 2>/dev/null || usage
        fuzz=$2
        fuzz_asked=yes
        shift
        ;;
    --long) long=yes ;;
    -k)
        [ $# -gt 1 ] || usage
        expression=$2
        shift
        ;;
    *) usage ;;
    esac
    shift
done

cd -- "$(dirname -- "$0")/.." || exit 1
root=$PWD

# ---- counting and headings -------------------------------------------------------------------

passed=0
failed=0
skipped=0

count() {
    passed=$((passed + $1))
    failed=$((failed + $2))
    skipped=$((skipped + $3))
}

# count_failure MESSAGE: one that no runner counts.
count_failure() {
    printf 'FAILED: %s\n' "$1"
    count 0 1 0
}

stage_name=
stage_start=

stage() {
    stage_name=$1
    stage_start=$(date +%s)
    printf '\n==== %s\n' "$stage_name"
}

end_stage() {
    printf -- '---- %s: %s s\n' "$stage_name" "$(($(date +%s) - stage_start))"
}

finish() {
    line="$passed passed, $failed failed"
    [ $skipped -eq 0 ] || line="$line, $skipped skipped"
    printf '\n%s\n' "$line"
    [ $failed -eq 0 ]
    exit
}

# The python3 that has what the tests import; the first on PATH may not.
find_python() {
    for python in /usr/bin/python3 python3 $(
        IFS=:
        for folder in $PATH; do
            ls "$folder"/python3.* 2>/dev/null
        done
    ); do
        if "$python" -c 'import cbor2, numpy, pytest' 2>/dev/null; then
            command -v "$python"
            return 0
        fi
    done
    return 1
}

# ---- the stages ------------------------------------------------------------------------------

targets= # of meson compile; all if empty

# compile DIR OPTION...
compile() {
    dir=$1
    shift
    if [ -f "$dir/build.ninja" ]; then
        meson configure "$dir" -Dwerror=true -Dtests=enabled "$@" || return
    else
        meson setup "$dir" -Dwerror=true -Dtests=enabled "$@" || return
    fi
    # shellcheck disable=SC2086 # a list of words
    meson compile -C "$dir" $targets
}

# build TITLE DIR OPTION...: what the compiler says is shown only if it fails; warnings are errors.
build() {
    stage "Build, $1 ($2/)"
    shift
    output=$(mktemp) || return
    compile "$@" >"$output" 2>&1
    status=$?
    if [ $status -ne 0 ]; then
        cat "$output"
        count_failure "the build in $1/"
    fi
    rm -f "$output"
    end_stage
    return $status
}

# Counts what `meson test` ran: the sums that check prints, and a program that prints none (a fuzz
# driver, or one that died) as one test. Prints "PASSED FAILED SKIPPED".
sum_unit() {
    "$python" - "$1" <<'END'
import json, re, sys

passed = failed = skipped = 0
with open(sys.argv[1], encoding="utf-8", errors="replace") as log:
    for line in log:
        test = json.loads(line)
        output = (test.get("stdout") or "") + (test.get("stderr") or "")
        sums = re.findall(r"Checks: (\d+), Failures: (\d+), Errors: (\d+)", output)
        bad = sum(int(failures) + int(errors) for _, failures, errors in sums)
        passed += sum(int(checks) for checks, _, _ in sums) - bad
        if test["result"] == "SKIP":
            skipped += 1
            print("SKIPPED", test["name"], output.strip()[-300:], file=sys.stderr)
        elif test["result"] in ("OK", "EXPECTEDFAIL"):
            passed += not sums
        else:  # a program that says all is well and fails nevertheless did not end well
            bad = bad or 1
            print("FAILED", test["name"] + ":", test["result"], file=sys.stderr)
        failed += bad
print(passed, failed, skipped)
END
}

run_unit() {
    log=$1/meson-logs/testlog.json
    rm -f "$log"
    meson test -C "$1" --no-rebuild --print-errorlogs
    status=$?
    if [ ! -f "$log" ]; then
        # Where no test is defined there is no log, and the status is 0.
        [ $status -eq 0 ] || count_failure "meson test ended with status $status and no results"
        return
    fi
    before=$failed
    if sums=$(sum_unit "$log" 2>&1 >"$log.sums"); then
        [ -z "$sums" ] || printf '%s\n' "$sums"
        read -r a b c <"$log.sums"
        count "$a" "$b" "$c"
    else
        count_failure "the results of meson test cannot be read: $sums"
    fi
    [ $status -eq 0 ] || [ $failed -gt "$before" ] ||
        count_failure "meson test ended with status $status"
}

# Prints "PASSED FAILED SKIPPED" of a JUnit file.
sum_pytest() {
    "$python" - "$1" <<'END'
import sys, xml.etree.ElementTree as tree

total = bad = skipped = 0
for suite in tree.parse(sys.argv[1]).iter("testsuite"):
    total += int(suite.get("tests"))
    bad += int(suite.get("failures")) + int(suite.get("errors"))
    skipped += int(suite.get("skipped"))
# A test can pass and its teardown fail: that is one error more than there are tests.
print(max(total - bad - skipped, 0), bad, skipped)
END
}

run_pytest() {
    report=$1/pytest.xml
    rm -f "$report"
    set -- BPK_BUILD="$root/$1" "$python" -m pytest -q -rs --junit-xml="$report" tests/integration
    if [ -n "$expression" ]; then
        set -- "$@" -k "$expression"
    fi
    env "$@"
    status=$?
    # 5: no test matched
    if [ $status -eq 5 ] && [ -n "$expression" ]; then
        return
    fi
    before=$failed
    if sums=$(sum_pytest "$report"); then
        # shellcheck disable=SC2086 # three numbers
        count $sums
    fi
    [ $status -eq 0 ] || [ $failed -gt "$before" ] || count_failure "pytest ended with status $status"
}

# suite TITLE DIR: both runners on a build.
suite() {
    stage "Unit tests, $1"
    run_unit "$2"
    end_stage
    stage "Integration tests, $1"
    run_pytest "$2"
    end_stage
}

# Whatever a sanitizer wrote, of daemons in the background too, is a failure each.
count_reports() {
    for report in "$1"/report.*; do
        [ -f "$report" ] || continue
        printf '\n'
        head -n 60 "$report"
        count_failure "a sanitizer's report, $report"
    done
}

run_sanitized() {
    build 'with sanitizers' build-san -Db_sanitize=address,undefined -Db_lundef=false || return
    reports=$root/build-san/reports
    rm -rf "$reports"
    mkdir -p "$reports"
    ASAN_OPTIONS="detect_leaks=1:abort_on_error=0:log_path=$reports/report"
    UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1:log_path=$reports/report"
    export ASAN_OPTIONS UBSAN_OPTIONS
    suite 'with sanitizers' build-san
    count_reports "$reports"
}

has_fuzzer() {
    echo 'int LLVMFuzzerTestOneInput(const char *data, long size) { return data && size < 0; }' |
        clang -fsanitize=fuzzer,address,undefined -x c -o /dev/null - 2>/dev/null
}

# What was found, for one who has only this output: where CI runs, the files do not stay.
show_found() {
    for input in build-fuzz/found/"$1"-*; do
        if [ -f "$input" ] && [ "$(wc -c <"$input")" -le 16384 ]; then
            printf '%s, in base64:\n' "$input"
            base64 "$input"
        fi
    done
}

# fuzz_target PROGRAM SECONDS
fuzz_target() {
    name=${1##*/fuzz_}
    mkdir -p "build-fuzz/corpus/$name" build-fuzz/found
    output=build-fuzz/$name.log
    set -- "$1" -max_total_time="$2" -timeout=60 -artifact_prefix="build-fuzz/found/$name-" \
        "build-fuzz/corpus/$name" "tests/fuzz/corpus/$name"
    # Its accounts of rare features would take most of the time where there are many.
    [ "$name" != ops ] || set -- "$@" -entropic=0
    if ASAN_OPTIONS='' UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 "$@" >"$output" 2>&1; then
        printf '%s: %s\n' "$name" "$(tail -n 1 "$output")"
        count 1 0 0
    else
        tail -n 40 "$output"
        show_found "$name"
        count_failure "fuzz_$name; see $output"
    fi
}

run_fuzz() {
    if ! has_fuzzer; then
        echo 'There is no clang with libFuzzer; of the fuzz targets only the corpora are tested.'
        [ $fuzz_asked = no ] || count_failure '--fuzz needs clang with libFuzzer'
        return
    fi
    targets=fuzz
    CC=clang build 'with libFuzzer' build-fuzz -Dfuzz=true -Dwerror=false -Dlibrary=disabled \
        -Db_sanitize=address,undefined -Db_lundef=false || return
    stage "Fuzzing, $1 s a target"
    for program in build-fuzz/tests/fuzz/fuzz_*; do
        [ ! -f "$program" ] || fuzz_target "$program" "$1"
    done
    end_stage
}

check_format() {
    stage 'Format'
    files=$(find src fs tests examples -name '*.[ch]')
    # shellcheck disable=SC2086 # a list of words
    if output=$(clang-format --dry-run -Werror $files 2>&1); then
        count 1 0 0
    else
        printf '%s\n' "$output" | head -n 40
        count_failure 'clang-format would change something'
    fi
    end_stage
}

stage 'Dependencies'
sh packaging/install-deps.sh --tests || echo 'Not all could be installed; going on with what there is.'
# Not there in a bare root filesystem, and fusermount3 reads it for those who are not root.
[ -e /etc/mtab ] || [ "$(id -u)" -ne 0 ] || ln -s ../proc/self/mounts /etc/mtab
end_stage

if [ "$ci" = true ] && command -v clang-format >/dev/null; then
    check_format
fi

if ! python=$(find_python); then
    count_failure 'no python3 imports cbor2, numpy and pytest'
    finish
fi

build plain build || finish
suite 'plain build' build
[ "$sanitize" = no ] || run_sanitized
[ "$fuzz" -eq 0 ] || run_fuzz "$fuzz"
if [ "$long" = yes ]; then
    # shellcheck source=tests/matrix.sh
    . "$root/tests/matrix.sh"
    run_matrix
fi
finish
