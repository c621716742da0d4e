// Validates schemas/v1/asyncapi.json (or the file that is named) with AsyncAPI's own parser.
import { readFile } from "node:fs/promises";
import { Parser } from "@asyncapi/parser";

const file = process.argv[2] ?? new URL("../../schemas/v1/asyncapi.json", import.meta.url);
const { document, diagnostics } = await new Parser().parse(await readFile(file, "utf8"));

const names = ["error", "warning", "information", "hint"];
for (const { severity, path, message, code } of diagnostics) {
  console.log(`${names[severity]}: ${code}: ${path.join(".")}: ${message}`);
}
const failed = !document || diagnostics.some(({ severity }) => severity <= 1);
if (document) {
  console.log(`${document.version()}: ${document.operations().length} operations, ${document.messages().length} messages`);
}
console.log(failed ? "asyncapi: not valid" : "asyncapi: valid");
process.exitCode = failed ? 1 : 0;
