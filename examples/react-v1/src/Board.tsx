import { type Task, columns } from "./tasks";

const headings = { todo: "To do", doing: "Doing", done: "Done" };

export function Board({ tasks }: { tasks: Task[] }) {
  return (
    <main className="board">
      <header>
        <h1>Team board</h1>
        <p>{tasks.length} tasks. The copilot on the right sees them, and may change them.</p>
      </header>
      <div className="columns">
        {columns.map((column) => (
          <section key={column} className={`column ${column}`} aria-label={headings[column]}>
            <h2>{headings[column]}</h2>
            {tasks
              .filter((task) => task.column === column)
              .map((task) => (
                <article key={task.title} className="task">
                  <strong>{task.title}</strong>
                  <span>{task.owner}</span>
                </article>
              ))}
          </section>
        ))}
      </div>
    </main>
  );
}
