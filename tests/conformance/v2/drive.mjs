// Drives a CopilotKit runtime with the real @copilotkit/core and prints, as normalised JSON, what it ends up with.
//
//   node drive.mjs BASE_URL NAME[,NAME…]|all|list [--transport auto|rest|single] [--client 1.50|1.57|1.74]
//                  [--out DIR] [--check DIR]
//
// --out writes NAME.TRANSPORT.json; --check compares with such files and exits with 1 when one differs.
import fs from "node:fs";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { normalise } from "./normalise.mjs";
import { scenarios } from "./scenarios.mjs";
import { Stage } from "./stage.mjs";

const CLIENTS = {
  "1.50": "./old-clients/node_modules/core-1.50/dist/index.mjs",
  "1.57": "./old-clients/node_modules/core-1.57/dist/index.mjs",
  "1.74": "@copilotkit/core",
};
const LONGEST = 120_000; // milliseconds

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    transport: { type: "string", default: "auto" },
    client: { type: "string", default: "1.74" },
    out: { type: "string" },
    check: { type: "string" },
  },
});
const [base, which = "all"] = positionals;
if (which === "list") {
  console.log(Object.keys(scenarios).join("\n"));
  process.exit();
}
const names = which === "all" ? Object.keys(scenarios) : which.split(",");

globalThis.window ??= { location: { origin: "http://app.example", href: "http://app.example/" } };
const print = console.log;
if (!process.env.VERBOSE) for (const level of ["log", "warn", "error", "info", "debug"]) console[level] = () => {};
const { CopilotKitCore: Core } = await import(CLIENTS[options.client]);

/** Play one scenario; what escapes the client's own handling stands among its requests. */
async function played(scenario) {
  const { transport } = options;
  const stage = new Stage({ Core, base, transport, scenario });
  const escaped = (name) => (error) => stage.http.push({ [name]: error?.message });
  const handlers = { uncaughtException: escaped("uncaught"), unhandledRejection: escaped("unhandled") };
  for (const [event, handler] of Object.entries(handlers)) process.on(event, handler);
  const late = sleep(LONGEST, { $timeout: true }, { ref: false });
  const broken = (error) => ({ $threw: String(error.stack).split("\n").slice(0, 3) });
  const result = await Promise.race([scenarios[scenario](stage).catch(broken), late]);
  for (const [event, handler] of Object.entries(handlers)) process.off(event, handler);
  return `${normalise({ scenario, transport, result, http: [...stage.http] })}\n`;
}

let different = 0;
for (const name of names) {
  const text = await played(name);
  const file = `${name}.${options.transport}.json`;
  if (options.out) {
    fs.mkdirSync(options.out, { recursive: true });
    fs.writeFileSync(path.join(options.out, file), text);
  }
  if (options.check) {
    const wanted = path.join(options.check, file);
    const same = fs.existsSync(wanted) && fs.readFileSync(wanted, "utf8") === text;
    if (!same) different++;
    print(`${same ? "same     " : "DIFFERENT"} ${name}`);
  } else print(options.out ? `wrote ${file}` : text.trimEnd());
}
process.exit(different ? 1 : 0);
