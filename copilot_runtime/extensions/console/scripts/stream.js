/* Server-sent events, for all pages. */

/* Yields the events of a response in batches, as they arrive: their types and data, which are texts. */
async function* framesOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (let rest = ""; ;) {
      const { done, value } = await reader.read();
      if (done) return;
      const blocks = (rest + value).split(/\r?\n\r?\n/);
      rest = blocks.pop();
      yield blocks.map(frameOf).filter(({ type, data }) => type || data);
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function frameOf(block) {
  const valuesOf = (field) => block.split(/\r?\n/).filter((line) => line.startsWith(`${field}:`)).map((line) => line.slice(field.length + 1).replace(/^ /, ""));
  return { type: valuesOf("event").join(""), data: valuesOf("data").join("\n") };
}
