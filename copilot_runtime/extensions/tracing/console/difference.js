/* A comparison of two traces: their steps in order, with the differences. */

const MOST_STEPS = 600;

/* Returns pairs of matching steps; a step without a match is paired with nothing. */
function alignSteps(before, after) {
  const a = before.slice(0, MOST_STEPS);
  const b = after.slice(0, MOST_STEPS);
  const longest = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i -= 1)
    for (let j = b.length - 1; j >= 0; j -= 1)
      longest[i][j] = a[i].name === b[j].name ? longest[i + 1][j + 1] + 1 : Math.max(longest[i + 1][j], longest[i][j + 1]);
  const pairs = [];
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i].name === b[j].name) pairs.push([a[i++], b[j++]]);
    else if (j >= b.length || (i < a.length && longest[i + 1][j] >= longest[i][j + 1])) pairs.push([a[i++], null]);
    else pairs.push([null, b[j++]]);
  }
  return pairs;
}

function drawDifference(before, after) {
  const made = element("table");
  const head = element("tr");
  head.append(...["step", "before", "now", "difference"].map((text) => element("th", text)));
  made.append(head, drawSums(before, after));
  const pairs = alignSteps(arrange(before).map(({ span }) => span), arrange(after).map(({ span }) => span));
  for (const [old, now] of pairs) {
    const row = element("tr");
    row.append(
      element("td", cut((old ?? now).name, 200)),
      element("td", old ? describeBar(old) : "–", old ? "" : "missing"),
      element("td", now ? describeBar(now) : "–", now ? "" : "missing"),
      element("td", describeDifference(old, now), colorOf(old, now)),
    );
    made.append(row);
  }
  if (Math.max(before.length, after.length) > MOST_STEPS) made.append(element("caption", `The first ${MOST_STEPS} steps of each are compared.`));
  return made;
}

const ANSWERS = ["gen_ai.output.messages", "gen_ai.tool.call.arguments", "gen_ai.tool.call.result"];

/* Describes the differences: the time, the error, and the answer if content is stored. */
function describeDifference(old, now) {
  if (!old || !now) return old ? "gone" : "new";
  const difference = lengthOf(now) - lengthOf(old);
  const errors = [old, now].map((span) => (hasFailed(span) ? String(attributeOf(span, NAME.error) ?? "error") : "no error"));
  const [before, after] = [old, now].map((span) => JSON.stringify(ANSWERS.map((name) => span.content?.[name] ?? null)));
  return [
    `${difference < 0 ? "−" : "+"}${formatTime(Math.abs(difference))}`,
    errors[0] === errors[1] ? "" : errors.map((error) => cut(error, 60)).join(" → "),
    before === after ? "" : "another answer",
  ].filter(Boolean).join(", ");
}

/* A new failure is always bad; added or removed steps are neutral. */
function colorOf(old, now) {
  if (now && hasFailed(now) && !(old && hasFailed(old))) return "more";
  if (!old || !now) return "";
  return lengthOf(now) > lengthOf(old) ? "more" : "less";
}

function drawSums(before, after) {
  const describe = (spans) => {
    const sums = sumUp(spans);
    const count = (number, word) => `${formatCount(number)} ${word}${number === 1 ? "" : "s"}`;
    return [count(sums.models, "request"), count(sums.tools, "call"), `${formatCount(sums.input)} + ${formatCount(sums.output)} tokens`, sums.dollars ? formatDollars(sums.dollars, sums.unpriced) : "", count(sums.errors, "error")].filter(Boolean).join(", ");
  };
  const row = element("tr");
  row.append(element("td", "in all"), element("td", describe(before)), element("td", describe(after)), element("td"));
  return row;
}
