#!/bin/sh
# Runs the client's tools, built where that was not done yet:
#   run.sh codec                   for the conformance suite
#   run.sh client [--ca FILE] URL  for the suite and for tests; the secret is in PHEBY_SECRET
#   run.sh say --url URL --secret-env NAME [--ca FILE] TEXT    one exchange; prints the answer
# FILE has certificates in PEM; a server is trusted by them and by no others.
here=$(cd "$(dirname "$0")" && pwd)
main="$here/build/classes/pheby/conformance/MainKt.class"
if [ ! -s "$here/build/classpath" ] || [ ! -f "$main" ] ||
  [ -n "$(find "$here/src/main" "$here/../../schemas/v1/kotlin" -newer "$main")" ]; then
  echo "Building the Kotlin client ..." >&2
  mvn -q -B --no-transfer-progress -f "$here/pom.xml" process-classes >&2 || exit 1
fi
# UTF-8 in words and on the output, whatever the locale. Short-lived: what starts quickly, not what runs fast for hours.
exec env LC_ALL=C.UTF-8 java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto \
  -cp "$here/build/classes:$(cat "$here/build/classpath")" pheby.conformance.MainKt "$@"
