/* The server: what it has, and what happens while somebody looks. */

const $ = (id) => document.getElementById(id);
const base = new URL(document.documentElement.dataset.endpoint, location.href).href.replace(/\/$/, "");

function headers(accept) {
  const authorization = $("authorization").value.trim();
  return authorization ? { accept, authorization } : { accept };
}

async function fetchTraces(path, accept = "application/json", signal = undefined) {
  const response = await fetch(`${base}/traces${path}`, { headers: headers(accept), signal });
  if (response.ok) return response;
  if (response.status === 401 || response.status === 403) $("authorization-box").open = true;
  const answer = await response.json().catch(() => ({}));
  throw new Error(answer.message ?? answer.error ?? `The server answered ${response.status}.`);
}

async function get(path) {
  return (await fetchTraces(path)).json();
}

/* Calls `listen` with each span that begins or ends, until the connection does; then begins anew. */
async function follow(listen, signal) {
  while (!signal.aborted) {
    try {
      const response = await fetchTraces("/stream", "text/event-stream", signal);
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        const events = (rest + value).split(/\r?\n\r?\n/);
        rest = events.pop();
        for (const event of events) {
          const phase = /^event: *span_(.*)$/m.exec(event)?.[1];
          const data = /^data: *(.*)$/m.exec(event)?.[1];
          if (data && (phase === "start" || phase === "end")) listen(JSON.parse(data), phase);
        }
      }
    } catch (error) {
      if (signal.aborted) return;
      if (/403|401|404/.test(error.message)) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, 2000));
  }
}

/* Does something, and shows what keeps it from being done. */
async function attempt(work) {
  $("problem").hidden = true;
  try {
    return await work();
  } catch (error) {
    if (error.name === "AbortError") return undefined;
    $("problem").textContent = error.message;
    $("problem").hidden = false;
    return undefined;
  }
}

function element(tag, text = "", className = "") {
  const made = document.createElement(tag);
  made.textContent = text;
  if (className) made.className = className;
  return made;
}
