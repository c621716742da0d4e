// A smoke test, no generator of ours: quicktype must digest the bundled schema and write Kotlin from it.
import { readFile, writeFile } from "node:fs/promises";
import { InputData, JSONSchemaInput, FetchingJSONSchemaStore, quicktype } from "quicktype-core";

const bundle = await readFile(new URL("../../schemas/v1/pheby.schema.json", import.meta.url), "utf8");
const schema = new JSONSchemaInput(new FetchingJSONSchemaStore());
await schema.addSource({ name: "Frame", schema: bundle });
const inputData = new InputData();
inputData.addInput(schema);

const { lines } = await quicktype({
  inputData,
  lang: "kotlin",
  rendererOptions: { framework: "kotlinx", package: "quicktype" },
});
if (process.argv[2]) await writeFile(process.argv[2], lines.join("\n"));

const classes = lines.filter((line) => /^(data|sealed|enum) class /.test(line)).length;
const digested = classes > 20 && lines.some((line) => line.includes("@Serializable"));
console.log(`quicktype: ${lines.length} lines of Kotlin, ${classes} classes${digested ? "" : ": not what was expected"}`);
process.exitCode = digested ? 0 : 1;
