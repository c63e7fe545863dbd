#!/bin/sh
# Install curl, the only program that the tests need beside Python's packages, where that is possible without a prompt
# (root, apt). Elsewhere the tests that need it are skipped.
set -u
command -v curl >/dev/null 2>&1 && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "installing curl, which some tests use ..."
    apt-get install -y -qq curl >/dev/null 2>&1 ||
        { apt-get update -qq && apt-get install -y -qq curl; } >/dev/null 2>&1
fi
command -v curl >/dev/null 2>&1 || echo "NO CURL HERE: the tests that use it will be skipped; install it to run them" >&2
exit 0
