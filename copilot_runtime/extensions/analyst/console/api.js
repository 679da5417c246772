/* The server API: data sets, memory, and questions with their streamed answers. */

const pathOf = (...parts) => `/analyst/${parts.map(encodeURIComponent).join("/")}`;

async function get(...parts) {
  return (await fetchData(pathOf(...parts))).json();
}

const change = (method, path, sent = undefined) => fetchData(path, "application/json", undefined, sent, method);

/* Asks a question, and calls `listen` with the type and data of each event of the answer. */
async function ask(question, listen, signal) {
  const response = await fetchData("/copilot/stream", "text/event-stream", signal, question);
  for await (const found of framesOf(response))
    for (const { type, data } of found) if (type) listen(type, data ? JSON.parse(data) : null);
}

/* Returns an image of the server as a data URL: the page may show no other images. */
async function loadImage(path) {
  const blob = await (await fetchData(`${path}?theme=${themeOfPage()}`, "image/png")).blob();
  return readAsDataUrl(blob);
}

/* Downloads a file from the server. */
async function saveDownload(path, name) {
  saveFile(await (await fetchData(path, "*/*")).blob(), name);
}
