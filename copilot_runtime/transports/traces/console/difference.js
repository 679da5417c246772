/* Two traces side by side: their steps in order, and where they part. */

const MOST_STEPS = 600;

/* Returns pairs of steps: those of both traces that are alike, and those that one of them lacks. */
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
    const difference = old && now ? endOf(now) - startOf(now) - (endOf(old) - startOf(old)) : 0;
    row.append(
      element("td", (old ?? now).name),
      element("td", old ? describeBar(old) : "–", old ? "" : "missing"),
      element("td", now ? describeBar(now) : "–", now ? "" : "missing"),
      element("td", old && now ? `${difference < 0 ? "−" : "+"}${formatTime(Math.abs(difference))}` : old ? "gone" : "new", difference > 0 ? "more" : "less"),
    );
    made.append(row);
  }
  return made;
}

function drawSums(before, after) {
  const describe = (spans) => {
    const sums = sumUp(spans);
    return `${sums.models} requests, ${sums.tools} calls, ${formatCount(sums.input)} + ${formatCount(sums.output)} tokens, ${sums.errors} errors`;
  };
  const row = element("tr");
  row.append(element("td", "in all"), element("td", describe(before)), element("td", describe(after)), element("td"));
  return row;
}
