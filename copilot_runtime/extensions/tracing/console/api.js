/* The server API: stored traces, and live spans. */

const fetchTraces = (path, accept, signal) => fetchData(`/traces${path}`, accept, signal);

async function get(path) {
  return (await fetchTraces(path)).json();
}

/* Calls `listen` with each span that starts or ends. A connection that has ended is renewed. At the start of each,
   `miss` is called, because spans before it may have been missed. */
async function follow(listen, miss, signal) {
  for (let isFirst = true; !signal.aborted; isFirst = false) {
    try {
      const response = await fetchTraces("/stream", "text/event-stream", signal);
      miss(isFirst);
      for await (const found of framesOf(response))
        for (const { type, data } of found) if (type === "span_start" || type === "span_end") listen(JSON.parse(data), type.slice(5));
    } catch (error) {
      if (signal.aborted) return;
      if ([401, 403, 404].includes(error.status)) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, 2000));
  }
}
