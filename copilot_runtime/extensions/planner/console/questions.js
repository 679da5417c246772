/* What a plan asks people. A question that somebody is writing about stays as it is. */

const ANSWERS = {
  approve: "Approve",
  reject: "Reject",
  retry: "Do it again",
  done: "It was done",
  fail: "Give it up",
  resolve: "Answer",
  cancel: "Cancel",
};
const NOTES = {
  approval: "A note, if you like",
  interrupted_call: "A note; if it was done, what came of it",
  interrupted_task: "A note; if it was done, what came of it",
  interrupt: "Your answer",
};

/* Shows the questions that are open. `answer` is called with a question, an answer and a note. */
function showQuestions(plan, answer, select) {
  const box = $("questions");
  const open = new Set(plan.questions.map((question) => question.id));
  for (const item of [...box.children]) if (!open.has(item.dataset.question)) item.remove();
  const known = new Set([...box.children].map((item) => item.dataset.question));
  for (const question of plan.questions) if (!known.has(question.id)) box.append(drawQuestion(question, answer, select));
  box.hidden = !box.childElementCount;
}

function drawQuestion(question, answer, select) {
  const item = element("li");
  item.dataset.question = question.id;
  const form = element("form");
  const text = element("p", cut(question.text, 20_000));
  text.id = `question-${question.id}`;
  const task = element("button", `Task ${question.task_id}`, "link");
  task.type = "button";
  task.hidden = question.task_id === ROOT;
  task.onclick = () => select(question.task_id);
  const note = element("textarea");
  note.placeholder = NOTES[question.kind] ?? "A note";
  note.setAttribute("aria-label", note.placeholder);
  note.setAttribute("aria-describedby", text.id);
  const buttons = element("div", "", question.kind.startsWith("interrupted_") ? "answers plain" : "answers");
  buttons.append(...question.answers.map((name) => {
    const button = element("button", ANSWERS[name] ?? name);
    button.type = "button";
    button.onclick = async () => {
      for (const other of buttons.children) other.disabled = true;
      await answer(question, name, note.value);
      for (const other of buttons.children) other.disabled = false;
    };
    return button;
  }));
  form.onsubmit = (event) => event.preventDefault();
  form.append(text, ...drawContext(question), ...drawDetails(question), task, note, buttons);
  item.append(form);
  return item;
}

/* What a task is about to use that is to be approved. */
function drawContext({ context = [] }) {
  return context.map(({ name, output }) => {
    const box = element("details");
    box.open = true;
    box.append(element("summary", name), element("pre", output));
    return box;
  });
}

/* What an assistant asked, as it asked it. */
function drawDetails({ interrupt }) {
  if (!interrupt) return [];
  const box = element("details");
  box.append(element("summary", "As it was asked"), element("pre", cut(JSON.stringify(interrupt, null, 2), 20_000)));
  return [box];
}
