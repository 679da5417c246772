// Makes what a client ended up with comparable between runs: random ids are numbered, times and counters blanked.

const UUID = /[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/g;

/** Node 1.74 declares no version of AG-UI; that ours does is tested by itself. */
const withoutVersion = (key, value) => (key === "protocolVersion" ? undefined : value);

/** Return the value as the text of a file in expected/. */
export function normalise(value) {
  const seen = new Map();
  const numbered = (uuid) => seen.get(uuid) ?? seen.set(uuid, `<id${seen.size + 1}>`).get(uuid);
  return JSON.stringify(value ?? null, withoutVersion, 1)
    .replace(UUID, numbered)
    .replace(/\bt-[a-z]+(-[a-z0-9]+)*-\d{13}/g, "<thread>")
    .replace(/"(createdAt|updatedAt|lastRunAt)": "[^"]+"/g, '"$1": "<time>"')
    .replace(/"(joinCode|joinToken)": "[^"]+"/g, '"$1": "<secret>"')
    .replace(/"wsUrl": "ws:..127.0.0.1:\d+/g, '"wsUrl": "ws://<server>')
    .replace(/call_\d+/g, "call_N")
    .replace(/"msg_\d+"/g, '"msg_N"')
    .replace(/chatcmpl-\d+/g, "chatcmpl-N")
    .replace(/"timestamp": \d+/g, '"timestamp": 0');
}

/** Join the pieces of each text and of each call's arguments that came one after the other. */
export function squashed(events) {
  const joined = [];
  for (const event of events) {
    const last = joined.at(-1);
    const continues =
      last?.type === event.type &&
      /_CONTENT$|_ARGS$/.test(event.type) &&
      last.messageId === event.messageId &&
      last.toolCallId === event.toolCallId;
    if (continues) last.delta += event.delta;
    else joined.push({ ...event });
  }
  return joined;
}

/** Blank the counted words of the script "slow", of which more or fewer arrive before a stop. */
export const partial = (text) => (/^(\d+ )+$/.test(text ?? "") ? "<partial>" : text);
