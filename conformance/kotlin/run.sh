#!/bin/sh
# Runs what the conformance suite needs, once `mvn test-compile` or `make kotlin` has built it: run.sh codec | client URL
here=$(cd "$(dirname "$0")" && pwd)
exec java -cp "$here/build/classes:$(cat "$here/build/classpath")" pheby.conformance.MainKt "$@"
