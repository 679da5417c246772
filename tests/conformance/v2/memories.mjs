// What useMemories does: the store of core, over both transports. Arguments: the URL, the user.
globalThis.window = globalThis;
const { CopilotKitCore } = await import("@copilotkit/core");
const [runtimeUrl, user] = process.argv.slice(2);

for (const runtimeTransport of ["rest", "single"]) {
  const headers = { authorization: `Bearer ${user}` };
  const core = new CopilotKitCore({ runtimeUrl, runtimeTransport, headers });
  await new Promise((resolve) => {
    const connected = () => core.runtimeConnectionStatus === "connected" && resolve();
    core.subscribe({ onRuntimeConnectionStatusChanged: connected });
    connected();
  });
  const store = core.getMemoryStore();
  const show = () => console.log(store.getState().memories.map(({ content }) => content).join());
  const { id } = await store.addMemory({ content: "teal boats", kind: "topical" });
  await store.refresh();
  show();
  const changed = await store.updateMemory(id, { content: "orange boats", kind: "episodic" });
  show();
  console.log((await store.recall("boats")).map(({ content, kind }) => `${content}: ${kind}`).join());
  await store.removeMemory(changed.id);
  await store.refresh();
  show();
}
process.exit(0);
