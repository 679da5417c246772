/* The server API: stored traces, and live spans. */

const fetchTraces = (path, accept, signal) => fetchData(`/traces${path}`, accept, signal);

async function get(path) {
  return (await fetchTraces(path)).json();
}

/* Calls `listen` with each span that starts or ends. When a connection has ended, it is renewed,
   and `miss` is called, because spans in between may have been missed. */
async function follow(listen, miss, signal) {
  for (let isFirst = true; !signal.aborted; isFirst = false) {
    try {
      const response = await fetchTraces("/stream", "text/event-stream", signal);
      if (!isFirst) miss();
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
      if ([401, 403, 404].includes(error.status)) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, 2000));
  }
}

/* Downloads a file. */
function saveFile(blob, name) {
  const link = element("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
