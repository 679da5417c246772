/* The questions of an agent, in the chat and in the widget: what is asked, the fields and the buttons. */

const MOST_LISTED = 1_000;
let decided = new Map();  // the answers to open questions, by the id of the question

/* A question of the agent, which waits for an answer without a time limit. */
function interruptView(item) {
  const { interrupt } = item, { properties } = interrupt.responseSchema ?? {}, { approved, answer, ...others } = properties ?? {};
  const choices = answer?.enum, asked = { ...others, ...(!choices && answer && { answer }) };
  const fields = Object.entries(properties ? asked : { answer: {} }).map(fieldOf);
  const node = element("section", "", "card ask"), about = element("div"), form = element("div"), buttons = element("div", "", "buttons"), state = element("p", "", "note");
  const give = (name) => {
    const values = Object.fromEntries(fields.map(({ name, read }) => [name, read()]).filter(([, value]) => value !== undefined));
    const fixed = choices ? { answer: name } : approved && { approved: name === "approve" };
    const payload = properties ? { ...values, ...fixed } : asValue(values.answer ?? '{"approved":true}');
    item.said = saidOf({ answer: name, user: "you", note: Object.values(values).filter((value) => properties && typeof value !== "boolean").join(", ") });
    decide(interrupt, name === "reject" && !approved ? { status: "cancelled" } : { status: "resolved", payload });
  };
  node.setAttribute("aria-label", "Question of the agent");
  buttons.append(...(choices ?? ["approve", "reject"]).map((name) => button(REPLIES[name]?.[0] ?? name, () => give(name), name === "approve" ? "main" : "")));
  form.append(...fields.map(({ label }) => label), buttons);
  const called = interrupt.reason === "tool_call" && thread.call(interrupt.toolCallId);  // the message has its arguments as JSON
  const said = isObject(asValue(interrupt.message)) ? "" : interrupt.message;
  node.append(element("h2", called ? `May ${called.function.name} be called?` : said || "The agent waits for your answer"), about, form, state);
  return { node, update(_, thread) {
    const waits = thread.interrupts.includes(interrupt) && !decided.has(interrupt.id);
    if (waits) about.replaceChildren(...whatIsAsked(interrupt, thread));
    node.classList.toggle("answered", !waits);
    form.hidden = !waits;
    state.textContent = waits ? "" : item.said ?? "not answered here";
  } };
}

/* Who would do what, with which values: a call, a task of a plan, or what else the agent says about it. */
function whatIsAsked({ reason, toolCallId, message, metadata }, thread) {
  const { plan_id: planId, task_id: taskId, question_id: _, message: __, langgraph, tool, arguments: given, value = langgraph?.raw ?? asValue(message), ...others } = metadata ?? {};
  const call = thread.call(toolCallId)?.function, name = tool ?? call?.name, parts = [];
  const plan = thread.items.findLast(({ activityType, content }) => activityType === "plan" && content?.id === planId)?.content;
  const task = tasksOf(plan?.tasks).find(({ task }) => task.id === taskId)?.task;
  if (name) parts.push(element("p", `The agent ${agent} would call ${name} with:`), viewOf(given ?? asValue(call?.arguments || "{}")));
  if (task && reason === "approval") parts.push(element("p", task.assistant ? `${task.assistant} would do it.` : "An assistant is chosen when it begins."));
  for (const { name: source, output } of plan?.questions?.filter((each) => each.task_id === taskId).flatMap(({ context = [] }) => context) ?? []) {
    parts.push(element("p", `It gets the result of ${source}:`), element("pre", output));
  }
  if (value !== undefined && value !== message) parts.push(typeof value === "object" ? viewOf(value) : element("p", value));
  if (Object.keys(others).length) parts.push(viewOf(others));
  return parts;
}

/* A field of an answer; an empty one has no value. */
function fieldOf([name, schema]) {
  const { type, enum: choices, title = name.replace(/^./, (first) => first.toUpperCase()), default: before = "" } = schema ?? {};
  const field = element(choices ? "select" : "input"), label = element("label", title);
  if (choices) field.append(...choices.map((choice) => element("option", String(choice))));
  else if (type === "boolean") Object.assign(field, { type: "checkbox", checked: before === true });
  else Object.assign(field, { type: /^(number|integer)$/.test(type) ? "number" : "text", step: "any", value: before });
  label.append(field);
  const read = () => (choices ? choices[field.selectedIndex] : type === "boolean" ? field.checked : field.value === "" ? undefined : type === "string" || !type ? field.value : asValue(field.value));
  return { name, label, read };
}

/* Answers a question of the agent, which continues when none is open. */
function decide(interrupt, decision) {
  decided.set(interrupt.id, { interruptId: interrupt.id, ...decision });
  thread.items.filter((item) => item.interrupt === interrupt).forEach((item) => thread.changed.add(item));
  draw();
  if (thread.interrupts.every(({ id }) => decided.has(id))) answer(decisions());
}

/* The first tasks of a plan, each with its depth in the tree. */
function tasksOf(tasks, depth = 0, found = []) {
  for (const task of Array.isArray(tasks) ? tasks : []) {
    if (found.length > MOST_LISTED) break;
    found.push({ task: task ?? {}, depth });
    tasksOf(task?.tasks, depth + 1, found);
  }
  return found;
}
