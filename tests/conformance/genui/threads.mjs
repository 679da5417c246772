// Lists threads with the stores of CopilotKit's own clients, and prints each list that they show.
//
//     node threads.mjs BASE PACKAGE...
//
// A PACKAGE is one of node_modules, such as core-1.74. Nothing of a client is replaced: what it
// opens, joins and reads is what it does in a page.
import { createRequire } from "node:module";

const [base, ...packages] = process.argv.slice(2);
const require = createRequire(import.meta.url);
const info = await (await fetch(`${base}/info`)).json();
for (const name of packages) {
  const store = require(name).ɵcreateThreadStore({ fetch: globalThis.fetch });
  store.start();
  let shown = "";
  store.select((state) => state).subscribe(({ threads, isLoading, context }) => {
    const line = `${name} ${JSON.stringify(threads.map((each) => each.name ?? each.id))}`;
    if (isLoading || !context || line === shown) return;
    console.log(shown = line);
  });
  store.setContext({ runtimeUrl: base, headers: {}, wsUrl: info.intelligence?.wsUrl, agentId: "default" });
}
