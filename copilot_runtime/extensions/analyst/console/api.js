/* The server API: data sets, memory, and questions with their streamed answers. */

const pathOf = (...parts) => `/analyst/${parts.map(encodeURIComponent).join("/")}`;

async function get(...parts) {
  return (await fetchData(pathOf(...parts))).json();
}

/* Sends PATCH and DELETE requests: `fetchData` only reads and posts. */
async function change(method, path, sent = undefined) {
  const headers = { accept: "application/json" };
  if (sent !== undefined) headers["content-type"] = "application/json";
  const body = sent === undefined ? undefined : JSON.stringify(sent);
  const response = await fetchAuthorized(path, { method, headers, body });
  if (response.ok) return;
  const answer = await response.json().catch(() => ({}));
  throw new Error(answer.message ?? answer.error ?? `The server answered ${response.status}.`);
}

/* Asks a question, and calls `listen` with the type and data of each event of the answer. */
async function ask(question, listen, signal) {
  const response = await fetchData("/copilot/stream", "text/event-stream", signal, question);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const frames = (rest + value.replaceAll("\r", "")).split("\n\n");
    rest = frames.pop();
    for (const frame of frames) {
      const kind = /^event: ?(.*)$/m.exec(frame)?.[1];
      const data = [...frame.matchAll(/^data: ?(.*)$/gm)].map((line) => line[1]).join("\n");
      if (kind) listen(kind, data ? JSON.parse(data) : null);
    }
  }
}

/* Returns an image of the server as a data URL: the page may show no other images. */
async function loadImage(path) {
  const blob = await (await fetchData(`${path}?theme=${themeOfPage()}`, "image/png")).blob();
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(new Error("The chart cannot be read."));
    reader.readAsDataURL(blob);
  });
}

/* Downloads a file from the server. */
async function saveDownload(path, name) {
  const link = element("a");
  link.href = URL.createObjectURL(await (await fetchData(path, "*/*")).blob());
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
