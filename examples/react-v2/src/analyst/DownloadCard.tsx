import { urlOf } from "./address";
import type { Download } from "./schemas";
import { countOf } from "./values";

/** A file of rows, which only the person who asked for it can fetch. */
export function DownloadCard({ download }: { download: Download }) {
  const until = new Date(download.expires_at);
  const isOver = until.getTime() < Date.now();
  return (
    <div className="download" role="group" aria-label={`Download ${download.filename}`}>
      <span className="file" aria-hidden="true">
        {download.format.toUpperCase()}
      </span>
      <p>
        <b>{download.filename}</b>
        <span className="quiet">
          {countOf(download.row_count, "row")} · {countOf(download.columns.length, "column")} ·{" "}
          {isOver ? "no longer there" : `until ${until.toLocaleTimeString("en", { timeStyle: "short" })}`}
        </span>
      </p>
      {!isOver && (
        <a className="primary" href={urlOf(`analyst/downloads/${download.id}`)} download={download.filename}>
          Download
        </a>
      )}
    </div>
  );
}
